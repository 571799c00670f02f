"""Is the bundled model there, and if not, how is it made?

`ensure_built` gives a folder with a model that is known to be whole.  The folder appears by one rename and its files are
checked against the manifest's checksums at every start, so a process killed in the middle, a full disk or a damaged file
leads to another build and never to wrong vectors.  Nothing here opens a session: see `bundled.py`.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from memory_service.errors import SetupRefused
from memory_service.models.e5_onnx import e5_model
from memory_service.models.e5_source import Progress, weight_file
from memory_service.models.e5_weights import WEIGHTS_SHA256, E5Weights, Vocabulary

GRAPH_VERSION = 1
"""Raise it whenever `e5_onnx.py` or `e5_tokenizer.py` changes what it makes: models built before are then built anew."""

_FOLDER = f"multilingual-e5-small-q4-{WEIGHTS_SHA256[:12]}-v{GRAPH_VERSION}"
_MODEL, _WEIGHTS, _VOCABULARY = "model.onnx", "weights.bin", "vocabulary.json"
_CHECKED = (_MODEL, _WEIGHTS, _VOCABULARY)
_MANIFEST, _LOCK = "manifest.json", ".build.lock"
_BUILDING = ".building-"
_LOCK_POLL_S = 0.2


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
    folder = model_dir.expanduser() / _FOLDER
    if _whole(folder):
        return BuiltModel(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / _LOCK, lock_timeout_s, progress):
            if not _whole(folder):  # another process may have built it meanwhile
                _build(folder, progress, download_timeout_s)
    except OSError as error:
        raise SetupRefused(
            f"The embedding model can't be written to {folder.parent}: {error.strerror or error}. It needs 250 MB there; "
            "HINDSIGHT_MODEL_DIR names another folder."
        ) from error
    return BuiltModel(folder)


def _whole(folder: Path) -> bool:
    try:
        manifest = orjson.loads((folder / _MANIFEST).read_bytes())
        return isinstance(manifest, dict) and manifest.get("sha256") == {
            name: _sha256(folder / name) for name in _CHECKED
        }
    except (OSError, ValueError):
        return False


def _build(folder: Path, progress: Progress, download_timeout_s: float) -> None:
    """Called with the lock held, so every other `.building-` folder is the remains of a process that died."""
    started = time.monotonic()
    for remains in folder.parent.glob(f"{_BUILDING}*"):
        shutil.rmtree(remains, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=folder.parent))
    try:
        weights = E5Weights(weight_file(scratch, progress, download_timeout_s))
        progress("building the embedding model (once)")
        made = scratch / "made"
        made.mkdir()
        model, constants = e5_model(weights, _WEIGHTS)
        _write(made / _WEIGHTS, constants)
        _write(made / _MODEL, model)
        _write(made / _VOCABULARY, orjson.dumps(asdict(weights.vocabulary)))
        sums = {name: _sha256(made / name) for name in _CHECKED}
        manifest = {"model": "intfloat/multilingual-e5-small", "weights_sha256": WEIGHTS_SHA256, "sha256": sums}
        _write(made / _MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        if folder.exists():
            progress("the embedding model on disk was damaged; replacing it")
            folder.rename(scratch / "damaged")
        made.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    progress(f"embedding model done in {time.monotonic() - started:.1f} s: {folder}")


def _write(path: Path, content: bytes | bytearray) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path, timeout_s: float, progress: Progress) -> Iterator[None]:
    """An flock, which the kernel drops when its holder dies, however it dies."""
    deadline, told = time.monotonic() + timeout_s, False
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SetupRefused(
                        f"Another process has been building the embedding model in {path.parent} for "
                        f"{timeout_s:.0f} s. Stop it, then start again."
                    ) from None
                if not told:
                    progress("waiting for another process that is building the embedding model")
                    told = True
                time.sleep(_LOCK_POLL_S)
        yield
