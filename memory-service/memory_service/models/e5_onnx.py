"""Which ONNX graph computes multilingual-e5-small?

Input: token ids and mask of shape (batch, sequence).  Output: the mean over unmasked tokens of the last layer, scaled to
unit length, shape (batch, hidden).  Nothing here reads or writes files.

Two choices carry the size and speed, both measured on 2 cores of an AVX2 EPYC:
- The word embeddings (96 of the model's 118 million weights) stay at 4 bits and are dequantised after the gather: 54 MB
  instead of 384 MB on disk and in memory, at no cost that could be measured, since a text touches a few rows only.
- The transformer's weights are float32 and its operators ONNX Runtime's fused ones.  Weights of 8 bits with dynamically
  quantised activations are 1.35 times as fast but moved the vectors to cosine .997 of the exact ones; 4-bit
  MatMulNBits is exact, but slower for short texts (14 ms against 9 ms at 10 tokens) and no faster for long ones.
"""

import numpy as np

from memory_service.models.bert_onnx import EMBEDDING, FLOAT, OPSET, encoded, inputs, integers, mean_pooled
from memory_service.models.e5_weights import E5Weights, QuantisedMatrix
from memory_service.models.onnx_wire import ExternalData, OnnxGraph


def e5_model(weights: E5Weights, weights_file: str) -> tuple[bytes, bytearray]:
    """The serialised ModelProto, and the content of the file named `weights_file` that must lie beside it (140 MB)."""
    external = ExternalData(weights_file)
    graph = OnnxGraph("multilingual-e5-small", OPSET, external)
    ids, mask = inputs(graph)
    words = _gather_quantised(graph, weights.quantised("emb.word", weights.shape.hidden), ids)
    mean_pooled(graph, encoded(graph, weights, words, ids, mask), mask)
    graph.output(EMBEDDING, "float32", ("batch", weights.shape.hidden))
    return graph.serialised(), external.content


def _gather_quantised(graph: OnnxGraph, matrix: QuantisedMatrix, ids: str) -> str:
    """(batch, sequence) ids → (batch, sequence, hidden) float32 rows of a 4-bit matrix."""
    nibbles = graph.constant("words.nibbles", matrix.nibbles)
    scales = graph.constant("words.scales", matrix.scales[..., None])
    rows = graph.node("Gather", (nibbles, ids), "words.rows")
    row_scales = graph.node("Gather", (scales, ids), "words.row_scales")
    low = graph.node("BitwiseAnd", (rows, graph.constant("u8.15", np.array([15], np.uint8))), "words.low")
    high = graph.node("Div", (rows, graph.constant("u8.16", np.array([16], np.uint8))), "words.high")
    last = integers(graph, "axes.last", [-1])
    pairs = graph.node(
        "Concat",
        (
            graph.node("Unsqueeze", (low, last), "words.low_column"),
            graph.node("Unsqueeze", (high, last), "words.high_column"),
        ),
        "words.pairs",
        attributes={"axis": -1},
    )
    unsigned = graph.node("Cast", (pairs,), "words.unsigned", attributes={"to": FLOAT})
    centred = graph.node("Sub", (unsigned, graph.constant("f32.8", np.array(8, np.float32))), "words.centred")
    blocks = graph.node("Reshape", (centred, integers(graph, "shape.blocks", [0, 0, 0, -1])), "words.blocks")
    scale = graph.node("Cast", (row_scales,), "words.scale", attributes={"to": FLOAT})
    scaled = graph.node("Mul", (blocks, scale), "words.scaled")
    return graph.node("Reshape", (scaled, integers(graph, "shape.flat", [0, 0, -1])), "words")
