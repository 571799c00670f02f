"""Is the bundled model there, and if not, how is it made?

`ensure_built` gives a folder with a model that is known to be whole (`built_folder.py` sees to that).  Nothing here opens a
session: see `bundled.py`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from memory_service.errors import SetupRefused
from memory_service.models.built_folder import ensure_folder, whole
from memory_service.models.e5_onnx import e5_model
from memory_service.models.e5_source import Progress, weight_file
from memory_service.models.e5_weights import WEIGHTS_SHA256, E5Weights, Vocabulary

VECTORS_VERSION = 1
"""Part of the fingerprint.  Raise it when vectors change by more than 1e-5: whoever stored some must reembed then."""

GRAPH_VERSION = 2
"""Raise it whenever `e5_onnx.py`, `bert_onnx.py` or `e5_tokenizer.py` changes what it makes: models built before are then built anew."""

_SAME_VECTORS = (1,)
"""Earlier graphs with the vectors of today's, only slower.  One serves where a new one can't be built, as without a network."""

_MODEL, _WEIGHTS, _VOCABULARY = "model.onnx", "weights.bin", "vocabulary.json"
_FACTS = {"model": "intfloat/multilingual-e5-small", "weights_sha256": WEIGHTS_SHA256}


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """Files of a model that passed the check."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / _MODEL

    def vocabulary(self) -> Vocabulary:
        stored = orjson.loads((self.folder / _VOCABULARY).read_bytes())
        return Vocabulary(**{**stored, "pieces": tuple(stored["pieces"]), "scores": tuple(stored["scores"])})


def ensure_built(
    model_dir: Path, progress: Progress, *, download_timeout_s: float, lock_timeout_s: float
) -> BuiltModel:
    """The model in `model_dir`, built now if it is not there or damaged.  Blocks; safe in several processes at once.

    Raises SetupRefused when the weights can't be had or the folder can't be written.
    """

    def make(scratch: Path) -> Mapping[str, bytes | bytearray]:
        weights = E5Weights(weight_file(scratch, progress, download_timeout_s))
        progress("building the embedding model (once)")
        model, constants = e5_model(weights, _WEIGHTS)
        vocabulary = orjson.dumps(asdict(weights.vocabulary))
        return {_WEIGHTS: constants, _MODEL: model, _VOCABULARY: vocabulary}

    folder, names = _folder(model_dir, GRAPH_VERSION), (_MODEL, _WEIGHTS, _VOCABULARY)
    try:
        ensure_folder(folder, names, make, _FACTS, progress, lock_timeout_s)
    except SetupRefused as refused:
        earlier = [_folder(model_dir, version) for version in _SAME_VECTORS]
        folder = next((one for one in earlier if whole(one, names)), folder)
        if folder not in earlier:
            raise
        progress(f"using the embedding model that an earlier version built, which is slower. {refused}")
    return BuiltModel(folder)


def _folder(model_dir: Path, graph_version: int) -> Path:
    return model_dir.expanduser() / f"multilingual-e5-small-q4-{WEIGHTS_SHA256[:12]}-v{graph_version}"
