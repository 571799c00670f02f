"""Which bodies make a collection and bring a living one to other settings?  Pure; the engine's side is in tests/service."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from pydantic import ValidationError

from memory_service.models.ports import EmbeddingFingerprint
from memory_service.settings import Settings, load_tunables
from memory_service.stores.qdrant_collection import STRICT, QdrantNumbers, changed, created_as

FINGERPRINT = EmbeddingFingerprint("test/model", "1", 384, "q: ", "p: ")


def numbers(**given: Any) -> QdrantNumbers:
    shipped = load_tunables(Settings()).section("qdrant", QdrantNumbers)
    return QdrantNumbers.model_validate({**shipped.model_dump(), **given})


def as_shown(body: dict[str, Any]) -> dict[str, Any]:
    """What the server says of a collection that was created with `body`, with strict mode on."""
    params = {
        name: body[name] for name in ("vectors", "shard_number", "replication_factor", "write_consistency_factor")
    }
    return {
        "params": params,
        "hnsw_config": {**body["hnsw_config"], "max_indexing_threads": 0},
        "quantization_config": body.get("quantization_config"),
        "strict_mode_config": {**STRICT, "max_query_limit": None},
        "metadata": body["metadata"],
    }


def test_the_shipped_settings_leave_vectors_and_quantisation_to_the_server() -> None:
    assert created_as(FINGERPRINT, numbers()) == {
        "vectors": {"size": 384, "distance": "Cosine"},
        "metadata": asdict(FINGERPRINT),
        "hnsw_config": {"m": 16, "payload_m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
        "shard_number": 1,
        "replication_factor": 1,
        "write_consistency_factor": 1,
    }


def test_a_cluster_gets_its_shards_and_copies() -> None:
    body = created_as(FINGERPRINT, numbers(shard_number=6, replication_factor=2, write_consistency_factor=2))
    assert (body["shard_number"], body["replication_factor"], body["write_consistency_factor"]) == (6, 2, 2)


def test_quantisation_is_sent_when_asked_for() -> None:
    body = created_as(FINGERPRINT, numbers(quantization="int8", quantization_quantile=0.9, vectors_on_disk="yes"))
    assert body["quantization_config"] == {"scalar": {"type": "int8", "quantile": 0.9, "always_ram": True}}
    assert body["vectors"]["on_disk"] is True
    assert "quantization_config" not in created_as(FINGERPRINT, numbers(quantization="none"))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"quantization": "int8"},
        {"quantization": "none"},
        {"vectors_on_disk": "no"},
        {"vectors_on_disk": "yes"},
        {"hnsw_m": 0, "hnsw_payload_m": 16},
        {"shard_number": 3, "replication_factor": 2},
    ],
)
def test_a_collection_that_was_made_with_these_settings_is_left_alone(given: dict[str, Any]) -> None:
    chosen = numbers(**given)
    assert changed(as_shown(created_as(FINGERPRINT, chosen)), chosen) == {}


def test_what_the_server_was_configured_with_is_left_alone() -> None:
    shown = as_shown(created_as(FINGERPRINT, numbers()))
    shown["quantization_config"] = {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}}
    shown["params"]["vectors"] = {"size": 384, "distance": "Cosine", "on_disk": True}
    assert changed(shown, numbers()) == {}


def test_a_collection_without_links_of_its_own_for_users_has_as_many_as_it_has_links() -> None:
    """Qdrant shows no payload_m where none was set; sending what is in force anyway would rebuild the graph."""
    shown = as_shown(created_as(FINGERPRINT, numbers()))
    del shown["hnsw_config"]["payload_m"]
    assert changed(shown, numbers()) == {}
    assert changed(shown, numbers(hnsw_payload_m=32)) == {"hnsw_config": {"payload_m": 32}}
    assert changed(shown, numbers(hnsw_payload_m=0)) == {"hnsw_config": {"payload_m": 0}}


@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"hnsw_m": 0}, {"hnsw_config": {"m": 0}}),
        ({"hnsw_ef_construct": 200}, {"hnsw_config": {"ef_construct": 200}}),
        ({"replication_factor": 2}, {"params": {"replication_factor": 2}}),
        ({"write_consistency_factor": 2}, {"params": {"write_consistency_factor": 2}}),
        ({"strict_mode": False}, {"strict_mode_config": {"enabled": False}}),
        ({"vectors_on_disk": "yes"}, {"vectors": {"": {"on_disk": True}}}),
        (
            {"quantization": "int8"},
            {"quantization_config": {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}}},
        ),
    ],
)
def test_only_what_differs_is_changed(given: dict[str, Any], body: dict[str, Any]) -> None:
    assert changed(as_shown(created_as(FINGERPRINT, numbers())), numbers(**given)) == body


def test_quantisation_is_taken_away_in_qdrants_word() -> None:
    shown = as_shown(created_as(FINGERPRINT, numbers(quantization="int8")))
    assert changed(shown, numbers(quantization="none")) == {"quantization_config": "Disabled"}


def test_a_new_collection_gets_strict_mode_after_its_indexes() -> None:
    shown = {**as_shown(created_as(FINGERPRINT, numbers())), "strict_mode_config": None}
    assert changed(shown, numbers()) == {"strict_mode_config": STRICT}
    assert changed(shown, numbers(strict_mode=False)) == {}


def test_search_asks_with_the_set_breadth_and_rescoring() -> None:
    asked = numbers(search_hnsw_ef=256, quantization_rescore=False, quantization_oversampling=3).search_params()
    assert asked == {"quantization": {"rescore": False, "oversampling": 3.0}, "hnsw_ef": 256}
    assert "hnsw_ef" not in numbers(search_hnsw_ef=0).search_params()


@pytest.mark.parametrize(
    "given",
    [
        {"shard_number": 0},
        {"quantization": "int4"},
        {"quantization_quantile": 2},
        {"hnsw_m": -1},
        {"vectors_on_disk": True},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_at_start(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        numbers(**given)
