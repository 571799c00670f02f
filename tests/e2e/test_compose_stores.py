"""Do the stores' configuration files say what working memory and the vector index rely on?"""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
QDRANT_TEXT = (ROOT / "config/qdrant.yaml").read_text("utf-8")
QDRANT: dict[str, Any] = yaml.safe_load(QDRANT_TEXT)


def redis_settings() -> dict[str, str]:
    lines = [
        line
        for line in (ROOT / "config/redis.conf").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    return dict(line.split(" ", 1) for line in lines)


def bytes_of(text: str) -> int:
    """`640m` or `1g` of compose, `256mb` of redis."""
    number, unit = re.fullmatch(r"(\d+)([mg])b?", text).groups()  # type: ignore[union-attr]
    return int(number) * {"m": 2**20, "g": 2**30}[unit]


def test_redis_logs_every_write_and_evicts_nothing() -> None:
    settings = redis_settings()
    assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "everysec")
    assert settings["maxmemory-policy"] == "noeviction"
    assert "requirepass" not in settings, "the password comes from .env"


def test_the_memory_limit_of_redis_leaves_room_to_rewrite_its_log() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    assert bytes_of(compose["services"]["redis"]["mem_limit"]) >= 2 * bytes_of(redis_settings()["maxmemory"])


def test_qdrant_keeps_int8_copies_in_ram_and_originals_and_payloads_on_disk() -> None:
    collection = QDRANT["storage"]["collection"]
    assert collection["quantization"]["scalar"]["type"] == "int8"
    assert collection["quantization"]["scalar"]["always_ram"] is True
    assert collection["vectors"]["on_disk"] is True
    assert QDRANT["storage"]["on_disk_payload"] is True
    assert QDRANT["storage"]["hnsw_index"]["on_disk"] is False


def test_qdrant_sends_no_telemetry_and_serves_no_other_web_page() -> None:
    assert QDRANT["telemetry_disabled"] is True
    assert QDRANT["service"]["enable_cors"] is False
    assert "api_key" not in QDRANT["service"], "the key comes from .env"


def test_every_setting_of_qdrant_has_a_reason() -> None:
    """Each line that sets a value stands under a comment, or in a group of such lines under one."""
    explained, unexplained = False, []
    for line in QDRANT_TEXT.splitlines():
        if line.lstrip().startswith("#"):
            explained = True
        elif not line.strip() or line.rstrip().endswith(":"):
            explained = False
        elif not explained:
            unexplained.append(line.strip())
    assert unexplained == ["log_level: INFO", "host: 0.0.0.0", "http_port: 6333", "enabled: false"]
