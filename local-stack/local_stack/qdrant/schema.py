"""What is a collection made of? Reads its configuration, builds the engine's, and shows it again as Qdrant would.

Settings that only steer speed or memory (graphs, optimisers, quantisation, write-ahead log) are checked for shape,
kept and shown, and have no effect on answers here: this process builds no graph (see collections.py), and the engine uses
quantised vectors only in segments that it built a graph for (measured: no difference at 20,000 points).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import qdrant_edge as edge

from local_stack.limits import limit
from local_stack.qdrant.errors import BadRequest, NotMapped
from local_stack.qdrant.fields import Fields
from local_stack.qdrant.strict import strict_mode

Json = dict[str, Any]
_DISTANCES = {
    "Cosine": edge.Distance.Cosine,
    "Euclid": edge.Distance.Euclid,
    "Dot": edge.Distance.Dot,
    "Manhattan": edge.Distance.Manhattan,
}
_DATATYPES = {
    "float32": edge.VectorStorageDatatype.Float32,
    "float16": edge.VectorStorageDatatype.Float16,
    "uint8": edge.VectorStorageDatatype.Uint8,
}
_HINTS = ("hnsw_config", "optimizers_config", "quantization_config", "wal_config")
_ONE_NODE = ("shard_number", "replication_factor", "write_consistency_factor")
_DIMENSIONS_MAX = 65536  # Qdrant's own limit
# Qdrant's defaults, shown where the client gave nothing (config/config.yaml of the server).
_HNSW = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000, "max_indexing_threads": 0, "on_disk": False}
_OPTIMIZERS = {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0}
_WAL = {"wal_capacity_mb": 32, "wal_segments_ahead": 0}


@dataclass(frozen=True)
class VectorNames:
    """What a point may carry: dense vectors by name ("" is the unnamed one) with their size, and sparse names."""

    dense: Mapping[str, int]
    sparse: frozenset[str]


def configuration(body: Fields) -> Json:
    """The configuration to keep, from the body of a create request. 400 or 501 for what can't be kept honestly."""
    for name in _ONE_NODE:
        _only_one(body, name)
    found: Json = {"vectors": body.take("vectors") or {}, "sparse_vectors": body.take("sparse_vectors") or {}}
    on_disk = body.flag("on_disk_payload")
    found["on_disk_payload"] = True if on_disk is None else on_disk
    for name in (*_HINTS, "metadata"):
        value = body.take(name)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise BadRequest(f"{name} must be an object")
        found[name] = value
    strict = body.take("strict_mode_config")
    if strict is not None:
        found["strict_mode_config"] = strict_mode(strict)
    body.done()
    engine_config(found)
    return found


def engine_config(config: Json) -> edge.EdgeConfig:
    """The engine's configuration; also the check that the kept one is valid."""
    dense = {name: _vector_params(params, name) for name, params in _by_name(config["vectors"]).items()}
    sparse = {name: _sparse_params(params, name) for name, params in dict(config["sparse_vectors"]).items()}
    return edge.EdgeConfig(
        vectors=dense,
        sparse_vectors=sparse,
        on_disk_payload=config["on_disk_payload"],
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=int(limit("qdrant", "graph_from_kb"))),
        max_search_threads=int(limit("qdrant", "search_threads")),
    )


def vector_names(config: Json) -> VectorNames:
    dense = {name: int(params["size"]) for name, params in _by_name(config["vectors"]).items()}
    return VectorNames(dense, frozenset(config["sparse_vectors"]))


def _by_name(vectors: Json) -> dict[str, Json]:
    """Vector parameters by name; one without a name is under ""."""
    if not isinstance(vectors, dict):
        raise BadRequest("vectors must be an object")
    return {"": vectors} if "size" in vectors and not isinstance(vectors["size"], dict) else dict(vectors)


def _vector_params(value: object, name: str) -> edge.EdgeVectorParams:
    fields = Fields(value, f"vectors.{name}")
    size = fields.whole("size", least=1, most=_DIMENSIONS_MAX)
    distance = fields.need_text("distance")
    if size is None or distance not in _DISTANCES:
        raise BadRequest(f"{fields.where} needs size and a distance out of {', '.join(_DISTANCES)}")
    datatype = fields.choice("datatype", _DATATYPES)
    multi = fields.take("multivector_config")
    if multi is not None:
        comparator = Fields(multi, f"{fields.where}.multivector_config")
        comparator.choice("comparator", ("max_sim",))
        comparator.done()
    on_disk = fields.flag("on_disk")
    fields.ignore("hnsw_config", "quantization_config", "memory")  # speed and memory only; shown again as given
    fields.done()
    return edge.EdgeVectorParams(
        size=size,
        distance=_DISTANCES[distance],
        on_disk=on_disk,
        datatype=None if datatype is None else _DATATYPES[datatype],
        multivector_config=None if multi is None else edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim),
    )


def _sparse_params(value: object, name: str) -> edge.EdgeSparseVectorParams:
    fields = Fields(value, f"sparse_vectors.{name}")
    modifier = fields.choice("modifier", ("idf", "none"))
    fields.ignore("index")  # full_scan_threshold, on_disk, memory: speed and memory only
    fields.done()
    return edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf if modifier == "idf" else None)


def config_changes(body: Fields) -> Json:
    """What an update of a collection changes, by section of the kept configuration; None removes one. 501 as in `configuration`."""
    changes: Json = {}
    for name in ("metadata", *_HINTS):
        value = body.take(name)
        if name == "quantization_config" and value == "Disabled":
            changes[name] = None
        elif value is not None and not isinstance(value, dict):
            raise BadRequest(f"{name} must be an object")
        elif value is not None:
            changes[name] = value
    strict = body.take("strict_mode_config")
    if strict is not None:
        changes["strict_mode_config"] = strict_mode(strict)
    params = Fields(body.take("params") or {}, "params")
    for name in _ONE_NODE[1:]:
        _only_one(params, name)
    params.done()
    for name, vector in dict(body.take("vectors") or {}).items():
        fields = Fields(vector, f"vectors.{name}")
        fields.ignore("on_disk", "memory", "hnsw_config", "quantization_config")  # speed and memory only
        fields.done()
    body.done()
    return changes


def _only_one(fields: Fields, name: str) -> None:
    number = fields.whole(name, least=1)
    if number is not None and number != 1:
        raise NotMapped(f"{name} = {number}: this is a single node")


def config_out(config: Json) -> Json:
    """The `config` of a collection's info."""
    params: Json = {
        "vectors": config["vectors"],
        "shard_number": 1,
        "replication_factor": 1,
        "write_consistency_factor": 1,
        "on_disk_payload": config["on_disk_payload"],
    }
    if config["sparse_vectors"]:
        params["sparse_vectors"] = config["sparse_vectors"]
    flush = {"flush_interval_sec": int(limit("qdrant", "flush_interval_s"))}
    found = {
        "params": params,
        "hnsw_config": {**_HNSW, **config.get("hnsw_config", {})},
        "optimizer_config": {**_OPTIMIZERS, **flush, **config.get("optimizers_config", {})},
        "wal_config": {**_WAL, **config.get("wal_config", {})},
        "quantization_config": config.get("quantization_config"),
    }
    for name in ("metadata", "strict_mode_config"):
        if name in config:
            found[name] = config[name]
    return found
