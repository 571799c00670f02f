"""How are token ids run through an ONNX graph?  One session a model, batches without much padding."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from memory_service.models.bert_onnx import ATTENTION_MASK, EMBEDDING, INPUT_IDS
from memory_service.models.embedding_settings import EmbeddingTunables
from memory_service.models.packing import packed
from memory_service.models.ports import Vector


def open_session(model: Path) -> Any:
    """One intra-op thread without spinning: parallelism comes from concurrent runs, which does not collapse under load.

    The graph is run as it is written: ONNX Runtime's further fusions would make slower operators of it (see `bert_onnx.py`).
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def encode_packed(
    session: Any, ids: Sequence[Sequence[int]], pad: int, dimensions: int, tunables: EmbeddingTunables
) -> Vector:
    """Token ids with special ones → float32 (len(ids), dimensions), unit rows, in order."""
    vectors = np.empty((len(ids), dimensions), np.float32)
    lengths = [len(row) for row in ids]
    for rows in packed(lengths, tunables.batch_tokens_max, tunables.batch_length_ratio_max):
        vectors[rows] = _run(session, [ids[row] for row in rows], pad)
    return vectors


def _run(session: Any, rows: Sequence[Sequence[int]], pad: int) -> Vector:
    shape = len(rows), max(len(row) for row in rows)
    ids, mask = np.full(shape, pad, np.int64), np.zeros(shape, np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    (vectors,) = session.run([EMBEDDING], {INPUT_IDS: ids, ATTENTION_MASK: mask})
    return np.asarray(vectors, np.float32)
