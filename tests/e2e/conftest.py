"""The stack that the end-to-end tests share; they isolate themselves by users."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# pytest imports test files by path here (importmode=importlib), so their neighbours have to be made findable; the
# examples are scripts, not a package.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from stack_running import Stack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("home")) as made:
        yield made
