"""Does docker-compose.yml keep what it promises?  Reads the files only; bringing it up needs Docker and is done by hand."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
STORES = ("postgres", "redis", "qdrant")
ONE_SHOT = ("migrate",)
LONG_RUNNING = tuple(name for name in SERVICES if name not in ONE_SHOT)
OURS = ("migrate", "memory-service", "mcp-gateway")
SECRETS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "QDRANT_API_KEY", "HINDSIGHT_API_KEY")
DOCKERFILES = (ROOT / "memory-service/Dockerfile", ROOT / "mcp-gateway/Dockerfile")
VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?P<rest>[^}]*)\}")


def settings_of_example() -> dict[str, str]:
    """Variables that .env.example sets, and those that it shows commented out."""
    lines = re.findall(r"^#?([A-Z][A-Z_]*)=(.*)$", (ROOT / ".env.example").read_text("utf-8"), re.MULTILINE)
    return dict(lines)


def variables_of_compose() -> set[str]:
    """Names interpolated, and names handed on because they have no value."""
    text = "\n".join(line for line in COMPOSE.read_text("utf-8").splitlines() if not line.lstrip().startswith("#"))
    handed_on = {
        name for service in SERVICES.values() for name, value in service["environment"].items() if value is None
    }
    return {match["name"] for match in VARIABLE.finditer(text)} | handed_on


def strings_in(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (str(key), *strings_in(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings_in(item)]
    return [str(value)]


@pytest.mark.parametrize("name", ["postgres", "redis", "qdrant", "migrate", "memory-service", "mcp-gateway"])
def test_the_service_exists_with_a_bounded_log_memory_and_no_way_to_new_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["mem_limit"]
    assert "no-new-privileges:true" in service["security_opt"]


def test_every_edge_waits_for_health_and_the_one_shot_for_its_end() -> None:
    edges = [
        (name, on, edge["condition"])
        for name, service in SERVICES.items()
        for on, edge in service.get("depends_on", {}).items()
    ]
    expected = {on: "service_completed_successfully" if on in ONE_SHOT else "service_healthy" for _, on, _ in edges}
    assert [edge for edge in edges if edge[2] != expected[edge[1]]] == []
    assert {("migrate", "postgres"), ("mcp-gateway", "memory-service")} < {edge[:2] for edge in edges}
    assert {on for name, on, _ in edges if name == "memory-service"} == {*STORES, *ONE_SHOT}


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_what_keeps_running_has_a_health_check_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert service["healthcheck"].keys() >= {"interval", "timeout", "retries", "start_period"}


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_one_shot_is_not_restarted(name: str) -> None:
    assert SERVICES[name]["restart"] == "no"


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_no_health_check_needs_curl_or_wget(name: str) -> None:
    assert not re.search(r"\b(curl|wget)\b", " ".join(SERVICES[name]["healthcheck"]["test"]))


@pytest.mark.parametrize("name", STORES)
def test_the_ports_of_a_store_are_on_loopback_whatever_the_settings_say(name: str) -> None:
    assert [port for port in SERVICES[name]["ports"] if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", ["memory-service", "mcp-gateway"])
def test_service_and_gateway_are_on_loopback_unless_told_otherwise(name: str) -> None:
    assert [port for port in SERVICES[name]["ports"] if not port.startswith("${HINDSIGHT_BIND:-127.0.0.1}:")] == []


def test_the_gateway_reaches_no_store() -> None:
    reached = {name for name in SERVICES if set(SERVICES[name]["networks"]) & set(SERVICES["mcp-gateway"]["networks"])}
    assert reached == {"mcp-gateway", "memory-service"}


def test_every_image_is_pinned_to_a_release() -> None:
    images = {name: service["image"] for name, service in SERVICES.items()}
    assert {name: image for name, image in images.items() if not re.search(r":v?\d+\.\d+", image)} == {}
    assert images["postgres"].startswith("postgres:16.")
    assert images["redis"].startswith("redis:7.")
    qdrant = re.match(r"qdrant/qdrant:v(\d+)\.(\d+)\.\d+-unprivileged$", images["qdrant"])
    assert qdrant is not None
    assert (int(qdrant[1]), int(qdrant[2])) >= (1, 16)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_is_pinned_unprivileged_and_fit_for_the_classic_builder(path: Path) -> None:
    instructions = re.sub(r"\\\n", " ", path.read_text("utf-8")).splitlines()
    bases = [line.split()[1] for line in instructions if line.startswith("FROM ")]
    assert [base for base in bases if not re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base)] == []
    final = instructions[max(number for number, line in enumerate(instructions) if line.startswith("FROM ")) :]
    assert [line for line in final if line.startswith("USER ")] == ["USER 10001"]
    assert [line for line in final if line.startswith("CMD ")][-1].startswith('CMD ["python", "-m"'), (
        "SIGTERM must reach python"
    )
    assert any(line.startswith("HEALTHCHECK ") for line in final)
    assert not [line for line in instructions if re.search(r"^RUN --|<<|^COPY .*--(chmod|link)", line)]


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_a_read_only_root_and_no_capability(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)
    assert "user" not in service, "the image's USER applies"


@pytest.mark.parametrize("name", STORES)
def test_a_store_keeps_its_data_in_a_named_volume(name: str) -> None:
    named = yaml.safe_load(COMPOSE.read_text("utf-8"))["volumes"]
    volumes = [volume.split(":") for volume in SERVICES[name]["volumes"]]
    assert len([volume for volume in volumes if volume[0] in named]) == 1
    assert [volume for volume in volumes if volume[0] not in named and volume[2:] != ["ro"]] == []


def test_every_secret_comes_from_the_environment_and_its_absence_is_refused_with_advice() -> None:
    text = COMPOSE.read_text("utf-8")
    for secret in SECRETS:
        refusals = [
            match["rest"]
            for match in VARIABLE.finditer(text)
            if match["name"] == secret and match["rest"].startswith(":?")
        ]
        assert refusals, secret
        assert all("cp .env.example .env" in refusal and secret in refusal for refusal in refusals)
        assert not re.search(r"\$\{" + secret + r":?-", text), "a default would be a password in the file"


def test_no_password_or_key_is_written_in_the_compose_file() -> None:
    for name, service in SERVICES.items():
        for key, value in service["environment"].items():
            if re.search(r"PASSWORD|_KEY|AUTH", key):
                assert value is None or value.startswith("${"), f"{name}: {key}"
        for text in strings_in(service):
            for password in re.findall(r"://[^/@\s]*:([^@\s]+)@", text):
                assert password.startswith("${"), f"{name}: {text}"


def test_the_example_holds_exactly_the_variables_that_compose_reads() -> None:
    assert sorted(settings_of_example()) == sorted(variables_of_compose())


def test_the_example_sets_every_secret_to_a_placeholder_that_fits_into_a_url() -> None:
    settings = settings_of_example()
    assert {name: settings[name] for name in SECRETS if not re.fullmatch(r"change-me-[a-z-]+", settings[name])} == {}


def test_defaults_are_the_same_in_the_example_and_in_the_compose_file() -> None:
    settings = settings_of_example()
    defaults = {
        match["name"]: match["rest"][2:]
        for match in VARIABLE.finditer(COMPOSE.read_text("utf-8"))
        if match["rest"].startswith(":-")
    }
    del defaults["EMBEDDING_EXTRAS"]  # nothing by default; the example shows the one value there is
    assert {name: settings[name] for name in defaults} == defaults


def test_the_build_context_lets_in_sources_only() -> None:
    lines = [
        line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert [path for path in allowed if not (ROOT / path).exists()] == []
    assert not [path for path in allowed if ".env" in path]
