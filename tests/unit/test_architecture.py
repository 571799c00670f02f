"""Do imports go one way?  The lines of ARCHITECTURE.md, checked on the source."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "memory-service" / "memory_service"
SOURCES = {
    "memory_service": SERVICE,
    "mcp_gateway": ROOT / "mcp-gateway" / "mcp_gateway",
    "local_stack": ROOT / "local-stack" / "local_stack",
}
FEATURES = ("write", "recall", "working", "experience", "lifecycle", "moving", "tasks")
COMMANDS = (
    "serving",
    "migrating",
    "reindexing",
    "reembedding",
    "maintaining",
    "keyring",
    "checkup",
    "exporting",
    "importing",
    "reviewing",
)
# Lower may not import higher.
LAYERS = {
    "errors": 0, "timestamps": 0,
    "domain": 1, "settings": 1, "metrics": 1, "logs": 1,
    "shapes": 2, "secrets": 2, "scripts": 2, "vocabulary": 2, "terms": 2, "models": 2, "stores": 3,
    **dict.fromkeys(FEATURES, 4), "access": 4,
    "jobs": 5, "operations": 6, "foundation": 7, "bootstrap": 7, "api": 8, "panel": 8, "reembed_run": 8, "app": 9, "wire": 9,
    **dict.fromkeys(COMMANDS, 10), "launched": 11, "__main__": 11,
}  # fmt: skip
FILE_LINES_MAX, FUNCTION_LINES_MAX = 500, 70


@cache
def files(package: str) -> list[Path]:
    return sorted(SOURCES[package].rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Parsed once: a dozen tests look at every file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layer_of(module: str) -> str:
    """`write` for memory_service.write.service."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SERVICE.parent).with_suffix("").parts)


@pytest.mark.parametrize("path", files("memory_service"), ids=lambda p: str(p.relative_to(SERVICE)))
def test_a_module_imports_only_its_own_layer_and_lower_ones(path: Path) -> None:
    own = layer_of(module_of(path))
    if own in ("", "__init__"):
        return
    assert own in LAYERS, f"{own} is in no layer: name its place in ARCHITECTURE.md and here"
    for module in imported(path):
        if module.startswith("memory_service.") and layer_of(module) in LAYERS:
            assert LAYERS[layer_of(module)] <= LAYERS[own], f"{module_of(path)} imports {module}"


@pytest.mark.parametrize("path", files("memory_service"), ids=lambda p: str(p.relative_to(SERVICE)))
def test_features_do_not_import_each_others_services(path: Path) -> None:
    own = layer_of(module_of(path))
    allowed = {("lifecycle", "working")}  # erasing a user goes through all stores
    if own not in FEATURES:
        return
    for module in imported(path):
        other = layer_of(module)
        if other in FEATURES and other != own and (own, other) not in allowed:
            assert ".service" not in module, f"{module_of(path)} imports {module}"


def test_sql_stands_only_under_stores_postgres_and_in_migrations() -> None:
    sql = re.compile(r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+\w+\s+SET)\b", re.DOTALL)
    allowed = {"migrating.py", "checkup.py"}  # alembic_version and the bootstrap key, before anything else runs
    for path in files("memory_service"):
        if "postgres" in path.parts or path.name in allowed:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper() is False:
                assert not sql.search(node.value), f"{path.relative_to(ROOT)}:{node.lineno} holds SQL"


def test_only_the_relay_and_the_rebuild_write_qdrant() -> None:
    writing = re.compile(r"index\.(upsert|delete_chunks|replace|ensure|make|serve|drop)\(")
    allowed = {
        "relay.py",
        "following.py",
        "reindexing.py",
        "reembed_run.py",
        "reembedding.py",
        "checkup.py",
        "qdrant.py",
    }
    for path in files("memory_service"):
        if path.name not in allowed:
            assert not writing.search(path.read_text(encoding="utf-8")), path


def test_memories_are_erased_with_what_was_made_of_them() -> None:
    """Summaries and insights tell what their sources said; only a user's whole erasure goes around families.py."""
    for path in files("memory_service"):
        if path.name not in {"families.py", "erasure.py", "changes.py"}:
            assert "changes.erase(" not in path.read_text(encoding="utf-8"), path


def test_the_gateway_and_the_local_stack_import_nothing_of_the_service() -> None:
    for package in ("mcp_gateway", "local_stack"):
        for path in files(package):
            others = [m for m in imported(path) if m.split(".")[0] in set(SOURCES) - {package}]
            assert not others, f"{path} imports {others}"


def test_there_are_no_rooms_for_everything() -> None:
    for package in SOURCES:
        for path in files(package):
            assert path.stem not in ("utils", "common", "helpers", "manager", "misc"), path


def test_every_module_opens_with_the_question_that_it_answers() -> None:
    for package in SOURCES:
        for path in files(package):
            tree = nodes(path)[0]
            assert isinstance(tree, ast.Module)
            if tree.body:
                assert ast.get_docstring(tree), f"{path.relative_to(ROOT)} has no docstring"


def test_files_and_functions_stay_short() -> None:
    for package in SOURCES:
        for path in files(package):
            lines = path.read_text(encoding="utf-8").count("\n")
            assert lines <= FILE_LINES_MAX, f"{path.relative_to(ROOT)} is too long"
            for node in nodes(path):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    length = (node.end_lineno or 0) - node.lineno + 1
                    assert length <= FUNCTION_LINES_MAX, (
                        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines"
                    )
