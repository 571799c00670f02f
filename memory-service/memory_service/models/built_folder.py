"""How is a model that was made once kept, so that only a whole one is ever used?

`ensure_folder` gives a folder whose files are those of its manifest.  The folder appears by one rename and its files are
checked against the manifest's checksums at every start, so a process killed in the middle, a full disk or a damaged file
leads to another build and never to wrong vectors.  It must not know what is inside: see `e5_build.py` and `onnx_folder.py`.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from memory_service.errors import SetupRefused
from memory_service.models.file_digest import sha256_of

Progress = Callable[[str], None]
Make = Callable[[Path], Mapping[str, bytes | bytearray]]
"""A scratch folder in, the files by name out."""

_MANIFEST, _LOCK = "manifest.json", ".build.lock"
_BUILDING = ".building-"
_LOCK_POLL_S = 0.2


def ensure_folder(
    folder: Path, names: Sequence[str], make: Make, facts: Mapping[str, str], progress: Progress, lock_timeout_s: float
) -> None:
    """`folder` holds the files `names`, made now if it is not there or damaged.  Blocks; safe in several processes at once.

    `facts` are kept in the manifest for people.  Raises SetupRefused when the folder can't be written; `make` may raise it too.
    """
    if whole(folder, names):
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / _LOCK, lock_timeout_s, progress):
            if not whole(folder, names):  # another process may have built it meanwhile
                _build(folder, names, make, facts, progress)
    except OSError as error:
        raise SetupRefused(
            f"The embedding model can't be written to {folder.parent}: {error.strerror or error}. It needs 250 MB there; "
            "HINDSIGHT_MODEL_DIR names another folder."
        ) from error


def whole(folder: Path, names: Sequence[str]) -> bool:
    """Its files are there and those of its manifest."""
    try:
        manifest = orjson.loads((folder / _MANIFEST).read_bytes())
        sums = {name: sha256_of(folder / name) for name in names}
        return isinstance(manifest, dict) and manifest.get("sha256") == sums
    except (OSError, ValueError):
        return False


def _build(folder: Path, names: Sequence[str], make: Make, facts: Mapping[str, str], progress: Progress) -> None:
    """Called with the lock held, so every other `.building-` folder is the remains of a process that died."""
    started = time.monotonic()
    for remains in folder.parent.glob(f"{_BUILDING}*"):
        shutil.rmtree(remains, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=folder.parent))
    try:
        made = scratch / "made"
        made.mkdir()
        for name, content in make(scratch).items():
            _write(made / name, content)
        sums = {name: sha256_of(made / name) for name in names}
        _write(made / _MANIFEST, orjson.dumps({**facts, "sha256": sums}, option=orjson.OPT_INDENT_2))
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
