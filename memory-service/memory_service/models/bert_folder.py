"""What model is in this folder, and do we compute it exactly?

Reads the folder of a sentence-transformers model with BERT's architecture (MiniLM, E5, BGE, GTE and others): configuration, pooling,
window, prompts, weights.  Whatever would change the vectors and is not computed here is refused by name: a vector that is almost
right is wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson

from memory_service.errors import SetupRefused
from memory_service.models.safetensors_file import SafetensorsFile

WEIGHTS = "model.safetensors"
_KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
_LAYER_PARTS = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm", "fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm",
}  # fmt: skip
_EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight", "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight", "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}  # fmt: skip
_PREFIXES = ("", "bert.")


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network, as config.json has them."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    layer_norm_epsilon: float


class BertFolder:
    """`bert_onnx.BertWeights` over a folder.  Raises SetupRefused when it holds something else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        config = _json(folder / "config.json")
        self._check(config)
        self.shape = Shape(
            config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"],
            config["intermediate_size"], config.get("layer_norm_eps", 1e-12),
        )  # fmt: skip
        self.pooling = self._pooling()
        told = _json(folder / "sentence_bert_config.json", optional=True).get("max_seq_length")
        positions = int(config["max_position_embeddings"])
        self.window_tokens = min(int(told or positions), positions)
        self.pad = int(config.get("pad_token_id") or 0)
        self.prompts: Mapping[str, str] = _json(folder / "config_sentence_transformers.json", optional=True).get(
            "prompts", {}
        )

    def open_weights(self) -> None:
        """Before `float32` and `matrix`; a start that finds the built model does not need them."""
        self._tensors = SafetensorsFile(self._folder / WEIGHTS)
        word = _EMBEDDINGS["emb.word"]
        self._prefix = next((prefix for prefix in _PREFIXES if prefix + word in self._tensors), "")

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        return self._tensors.float32(self._named(name)).reshape(-1)

    def matrix(self, name: str, columns: int) -> npt.NDArray[np.float32]:
        return self._tensors.float32(self._named(name)).reshape(-1, columns)

    def _named(self, name: str) -> str:
        if name in _EMBEDDINGS:
            return self._prefix + _EMBEDDINGS[name]
        layer, part, kind = name.split(".")
        return f"{self._prefix}encoder.layer.{layer[1:]}.{_LAYER_PARTS[part]}.{'weight' if kind == 'w' else 'bias'}"

    def _check(self, config: Mapping[str, Any]) -> None:
        wanted = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
        for key, value in wanted.items():
            if config.get(key, value) != value or (key == "model_type" and key not in config):
                raise self._refused(f"its {key} is {config.get(key)}, not {value}")
        if not (self._folder / WEIGHTS).is_file():
            raise self._refused(f"there is no {WEIGHTS}")
        if not (self._folder / "tokenizer.json").is_file():
            raise self._refused("there is no tokenizer.json")

    def _pooling(self) -> Literal["mean", "cls"]:
        modules = _json(self._folder / "modules.json")
        for module in modules:
            if module["type"].rpartition(".")[2] not in _KNOWN_MODULES:
                raise self._refused(f"it has a module {module['type']}")
        folder = next((m["path"] for m in modules if m["type"].endswith(".Pooling")), None)
        told = _json(self._folder / folder / "config.json") if folder else {}
        modes = {
            key.removeprefix("pooling_mode_")
            for key, on in told.items()
            if key.startswith("pooling_mode_") and on is True
        }
        if modes == {"mean_tokens"}:
            return "mean"
        if modes == {"cls_token"}:
            return "cls"
        raise self._refused(f"it pools by {', '.join(sorted(modes)) or 'nothing known'}")

    def _refused(self, why: str) -> SetupRefused:
        return SetupRefused(
            f"HINDSIGHT_EMBEDDING_PROVIDER=onnx can't run the model in {self._folder}: {why}. It runs folders of "
            "sentence-transformers models with BERT's architecture, mean or CLS pooling; for others use "
            "HINDSIGHT_EMBEDDING_PROVIDER=sentence-transformers."
        )


def _json(path: Path, *, optional: bool = False) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError:
        if optional:
            return {}
        raise SetupRefused(
            f"{path} is not there: HINDSIGHT_EMBEDDING_MODEL must name the folder of a sentence-transformers model"
        ) from None
    except (OSError, ValueError) as error:
        raise SetupRefused(f"{path} can't be read: {error}") from error
