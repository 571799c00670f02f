"""Does a BERT model from a folder give the vectors that its weights say, and is what we can't compute refused by name?

The model is made here, with random weights and a vocabulary of ten words; a plain numpy forward pass judges the outcome.
"""

import asyncio
import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_service.errors import SetupRefused
from memory_service.models import onnx_folder
from memory_service.models.embedders import open_embedder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.onnx_folder import OnnxFolderModel

TUNABLES = EmbeddingTunables(
    **tomllib.loads((Path(__file__).parents[3] / "config" / "memory.toml").read_text())["embedding"]
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "port", "moved", "again", "##s", "."]
HIDDEN, LAYERS, HEADS, WIDE, POSITIONS = 16, 2, 4, 32, 12
Weights = dict[str, np.ndarray[Any, np.dtype[np.float32]]]


def made(folder: Path, pooling: str = "mean_tokens", prefix: str = "", **config: object) -> Weights:
    """A model folder as sentence-transformers saves it; its weights."""
    dice = np.random.default_rng(7)
    sizes = {
        "embeddings.word_embeddings.weight": (len(WORDS), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
    }
    sizes |= {
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for part, shape in {
            "attention.self.query": (HIDDEN, HIDDEN), "attention.self.key": (HIDDEN, HIDDEN), "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN), "attention.output.LayerNorm": (HIDDEN,), "intermediate.dense": (WIDE, HIDDEN),
            "output.dense": (HIDDEN, WIDE), "output.LayerNorm": (HIDDEN,),
        }.items():  # fmt: skip
            sizes[f"encoder.layer.{layer}.{part}.weight"] = shape
            sizes[f"encoder.layer.{layer}.{part}.bias"] = shape[:1]
    weights = {name: dice.normal(0, 0.5, shape).astype(np.float32) for name, shape in sizes.items()}
    write_safetensors(folder / "model.safetensors", {prefix + name: value for name, value in weights.items()})
    told = {
        "model_type": "bert", "hidden_act": "gelu", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "intermediate_size": WIDE, "max_position_embeddings": POSITIONS, "layer_norm_eps": 1e-5, "pad_token_id": 0, **config,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(told))
    modules = [
        {"path": "", "type": "x.Transformer"},
        {"path": "1_Pooling", "type": "x.Pooling"},
        {"path": "2", "type": "x.Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({f"pooling_mode_{pooling}": True, "pooling_mode_max_tokens": False})
    )
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    tokenizer = {
        "version": "1.0",
        "model": {**model, "vocab": vocabulary},
        "normalizer": {**normalizer, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "added_tokens": [],
        "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return weights


def write_safetensors(path: Path, tensors: Weights) -> None:
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    told = json.dumps(header).encode()
    path.write_bytes(len(told).to_bytes(8, "little") + told + b"".join(value.tobytes() for value in tensors.values()))


def forward(w: Weights, ids: list[int], pooling: str) -> np.ndarray[Any, Any]:
    def norm(x: Any, name: str) -> Any:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            linear(x, f"{at}.attention.self.{part}").reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HIDDEN // HEADS)
        shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        seen = (shares @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        x = norm(linear(seen, f"{at}.attention.output.dense") + x, f"{at}.attention.output.LayerNorm")
        x = norm(
            linear(gelu(linear(x, f"{at}.intermediate.dense")), f"{at}.output.dense") + x, f"{at}.output.LayerNorm"
        )
    pooled = x.mean(0) if pooling == "mean_tokens" else x[0]
    return np.asarray(pooled / np.linalg.norm(pooled))


def opened(folder: Path, tunables: EmbeddingTunables = TUNABLES, **chosen: object) -> OnnxFolderModel:
    config = EmbedderConfig(provider="onnx", model=str(folder), model_dir=folder.parent / "models")
    return OnnxFolderModel(replace(config, **chosen), tunables, lambda line: None)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    return tmp_path / "tiny"


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
@pytest.mark.parametrize("prefix", ["", "bert."])
def test_vectors_are_those_of_a_plain_forward_pass(folder: Path, pooling: str, prefix: str) -> None:
    weights = made(folder, pooling, prefix)
    vectors = opened(folder).encode(["the ports moved.", "again", "The port moved again, again."])
    expected = [[2, 4, 5, 8, 6, 9, 3], [2, 7, 3], [2, 4, 5, 6, 7, 1, 7, 9, 3]]
    for vector, ids in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(vector, forward(weights, ids, pooling), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_what_runs_beside_a_text_does_not_change_its_vector(folder: Path, pooling: str) -> None:
    made(folder, pooling)
    texts = ["again", "the ports moved.", "port", "The port moved again, again. the port"]
    together = opened(folder, tunables=replace(TUNABLES, batch_length_ratio_max=100.0)).encode(texts)
    np.testing.assert_allclose(together, [opened(folder).encode([text])[0] for text in texts], atol=1e-5)


def test_a_text_longer_than_the_window_is_cut_and_still_ends_like_a_text(folder: Path) -> None:
    weights = made(folder)
    [vector] = opened(folder).encode(["port " * 50])
    np.testing.assert_allclose(vector, forward(weights, [2, *[5] * (POSITIONS - 2), 3], "mean_tokens"), atol=1e-5)


def test_tokens_are_counted_and_placed_without_special_ones_and_without_a_cut(folder: Path) -> None:
    made(folder)
    model = opened(folder)
    assert model.count_tokens("the ports moved.") == 5
    assert list(model.token_starts("the ports moved.")) == [0, 4, 8, 10, 15]
    assert model.count_tokens("port " * 50) == 50


def test_it_is_built_once_and_serves_as_an_embedder(folder: Path) -> None:
    made(folder)
    lines: list[str] = []
    config = EmbedderConfig(provider="onnx", model=str(folder), model_dir=folder.parent / "models")
    for _ in range(2):
        embedder = asyncio.run(open_embedder(config, TUNABLES, lines.append))
    assert len([line for line in lines if "done in" in line]) == 1
    assert embedder.fingerprint.revision.endswith("-onnx-v1")


def test_a_newer_graph_is_built_anew_and_keeps_the_fingerprint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(folder)
    before = opened(folder).fingerprint
    monkeypatch.setattr(onnx_folder, "GRAPH_VERSION", onnx_folder.GRAPH_VERSION + 1)
    assert opened(folder).fingerprint == before
    assert len(list((folder.parent / "models").glob("onnx-*"))) == 2


def test_other_weights_are_another_fingerprint(folder: Path) -> None:
    made(folder)
    before = opened(folder).fingerprint
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    assert opened(folder).fingerprint != before


@pytest.mark.parametrize(
    ("config", "pooling", "said"),
    [
        ({"model_type": "xlm-roberta"}, "mean_tokens", "model_type is xlm-roberta"),
        ({"hidden_act": "relu"}, "mean_tokens", "hidden_act is relu"),
        ({"position_embedding_type": "relative_key"}, "mean_tokens", "position_embedding_type"),
        ({}, "weightedmean_tokens", "pools by weightedmean_tokens"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused_by_name(
    folder: Path, config: dict[str, object], pooling: str, said: str
) -> None:
    made(folder, pooling, **config)
    with pytest.raises(SetupRefused, match=said):
        opened(folder)


def test_a_module_behind_the_pooling_is_refused(folder: Path) -> None:
    made(folder)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "3_Dense", "type": "x.Dense"}]))
    with pytest.raises(SetupRefused, match="Dense"):
        opened(folder)


@pytest.mark.parametrize("missing", ["config.json", "modules.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_refused_by_its_name(folder: Path, missing: str) -> None:
    made(folder)
    (folder / missing).unlink()
    with pytest.raises(SetupRefused, match=missing):
        opened(folder)


def test_without_a_folder_or_with_other_dimensions_it_is_refused(folder: Path) -> None:
    made(folder)
    with pytest.raises(SetupRefused, match="HINDSIGHT_EMBEDDING_MODEL"):
        opened(folder, model=None)
    with pytest.raises(SetupRefused, match="16 dimensions"):
        opened(folder, dimensions=8)


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, (5).to_bytes(8, "little") + b"nope!"])
def test_a_damaged_weight_file_is_refused(folder: Path, content: bytes) -> None:
    made(folder)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(SetupRefused, match="safetensors"):
        opened(folder)
