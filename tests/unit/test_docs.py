"""Do the documents say what the code has?  Every route, setting, command, tool and number is named where a reader looks."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from memory_service.__main__ import app as commands
from memory_service.app import create_app
from memory_service.settings import Settings, load_tunables

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENV_EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")


def routes() -> dict[str, dict[str, object]]:
    return create_app(Settings()).openapi()["paths"]  # type: ignore[no-any-return]


def test_every_route_is_named_in_the_readme() -> None:
    for path in routes():
        # `/v1/memories/{memory_id}` is written `/v1/memories/{id}` for readers
        shown = path.replace("{memory_id}", "{id}").replace("{experience_id}", "{id}").replace("{conflict_id}", "{id}")
        assert shown in README, f"{path} is not in README.md"


def test_every_address_in_the_readme_exists() -> None:
    known = {re.sub(r"\{\w+\}", "{}", path) for path in routes()} | {
        "/openapi.json",
        "/panel",
        "/mcp",
        "/v1/embeddings",
    }
    for found in re.findall(r"`(?:[A-Z`, ]*`)?(?:GET|POST|PUT|PATCH|DELETE)?[ `]*(/(?:v1/)[\w\-/{}]+)", README):
        assert re.sub(r"\{\w+\}", "{}", found.rstrip("/")) in known, (
            f"README.md names {found}, which the service does not have"
        )


def test_every_environment_variable_of_the_service_is_in_env_example() -> None:
    for name in Settings.model_fields:
        assert f"HINDSIGHT_{name.upper()}" in ENV_EXAMPLE, f"HINDSIGHT_{name.upper()} is not in .env.example"


def test_every_number_of_memory_toml_has_a_reason_or_stands_below_one() -> None:
    text = (ROOT / "config" / "memory.toml").read_text(encoding="utf-8")
    for name in tomllib.loads(text):
        assert f"[{name}" in text
    assert load_tunables(Settings()).limits.batch_items_max == 500


def test_every_command_is_named_in_the_readme_or_the_help() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "memory_service", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": ""},
    ).stdout
    for command in commands.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        assert name in help_text
    for name in ("up", "down", "status", "logs", "keys", "reindex", "doctor"):
        assert name in help_text
        assert name in README


def test_every_make_target_in_the_documents_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in ("README.md", "ARCHITECTURE.md", "DECISIONS.md"):
        for target in re.findall(r"`make ([a-z0-9\-]+)", (ROOT / document).read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document} names make {target}"


def test_every_tool_that_the_gateway_lists_is_in_the_readme() -> None:
    from mcp_gateway.tools import ALL_TOOLS

    for tool in ALL_TOOLS:
        assert f"`{tool.name}" in README, f"{tool.name} is not in README.md"


def test_links_between_documents_lead_somewhere() -> None:
    for document in ROOT.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{document.name} links to {target}"
