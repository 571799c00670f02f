import subprocess
from pathlib import Path

import pytest

from local_stack.home import Home
from local_stack.processes import PYTHON
from local_stack.stores import qdrant_spec
from local_stack.supervisor import Commands


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("memory_service.launched", "hindsight: expected serve"),
        ("mcp_gateway", "usage: hindsight-mcp"),
        ("local_stack.qdrant", "usage:"),
    ],
)
def test_a_file_named_like_a_library_where_somebody_stands_is_not_taken_for_it(
    tmp_path: Path, module: str, says: str
) -> None:
    for name in ("mcp", "redis", "uvicorn", "fastapi", "qdrant_edge", "orjson", "logging"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong file')")
    argv = [*PYTHON, module, "--help"]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert says in ended.stdout + ended.stderr


def test_every_process_of_the_stack_is_started_so(tmp_path: Path) -> None:
    commands = Commands()
    for argv in (commands.migrate, commands.service, commands.gateway, qdrant_spec(Home(tmp_path), 1).argv):
        assert tuple(argv[: len(PYTHON)]) == PYTHON
