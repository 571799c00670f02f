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
import numpy.typing as npt

from memory_service.models.e5_weights import E5Weights, QuantisedMatrix
from memory_service.models.onnx_wire import ExternalData, OnnxGraph

INPUT_IDS, ATTENTION_MASK, EMBEDDING = "input_ids", "attention_mask", "embedding"

_OPSET = 20
_FUSED = "com.microsoft"
_FLOAT, _INT32 = 1, 6  # TensorProto.DataType, for Cast


def e5_model(weights: E5Weights, weights_file: str) -> tuple[bytes, bytearray]:
    """The serialised ModelProto, and the content of the file named `weights_file` that must lie beside it (140 MB)."""
    external = ExternalData(weights_file)
    graph = OnnxGraph("multilingual-e5-small", _OPSET, external)
    ids = graph.input(INPUT_IDS, "int64", ("batch", "sequence"))
    mask = graph.input(ATTENTION_MASK, "int64", ("batch", "sequence"))
    words = _gather_quantised(graph, weights.quantised("emb.word", weights.shape.hidden), ids)
    hidden = _embeddings(graph, weights, words, ids)
    key_mask = graph.node("Cast", (mask,), "key_mask", attributes={"to": _INT32})
    for layer in range(weights.shape.layers):
        hidden = _layer(graph, weights, f"l{layer}", hidden, key_mask)
    _mean_pooled(graph, hidden, mask)
    graph.output(EMBEDDING, "float32", ("batch", weights.shape.hidden))
    return graph.serialised(), external.content


def _integers(graph: OnnxGraph, name: str, values: list[int]) -> str:
    return graph.constant(name, np.array(values, np.int64))


def _gather_quantised(graph: OnnxGraph, matrix: QuantisedMatrix, ids: str) -> str:
    """(batch, sequence) ids → (batch, sequence, hidden) float32 rows of a 4-bit matrix."""
    nibbles = graph.constant("words.nibbles", matrix.nibbles)
    scales = graph.constant("words.scales", matrix.scales[..., None])
    rows = graph.node("Gather", (nibbles, ids), "words.rows")
    row_scales = graph.node("Gather", (scales, ids), "words.row_scales")
    low = graph.node("BitwiseAnd", (rows, graph.constant("u8.15", np.array([15], np.uint8))), "words.low")
    high = graph.node("Div", (rows, graph.constant("u8.16", np.array([16], np.uint8))), "words.high")
    last = _integers(graph, "axes.last", [-1])
    pairs = graph.node(
        "Concat",
        (
            graph.node("Unsqueeze", (low, last), "words.low_column"),
            graph.node("Unsqueeze", (high, last), "words.high_column"),
        ),
        "words.pairs",
        attributes={"axis": -1},
    )
    unsigned = graph.node("Cast", (pairs,), "words.unsigned", attributes={"to": _FLOAT})
    centred = graph.node("Sub", (unsigned, graph.constant("f32.8", np.array(8, np.float32))), "words.centred")
    blocks = graph.node("Reshape", (centred, _integers(graph, "shape.blocks", [0, 0, 0, -1])), "words.blocks")
    scale = graph.node("Cast", (row_scales,), "words.scale", attributes={"to": _FLOAT})
    scaled = graph.node("Mul", (blocks, scale), "words.scaled")
    return graph.node("Reshape", (scaled, _integers(graph, "shape.flat", [0, 0, -1])), "words")


def _embeddings(graph: OnnxGraph, weights: E5Weights, words: str, ids: str) -> str:
    """Word + position + token type 0 (the only type there is, so it is folded into the positions), normalised."""
    hidden = weights.shape.hidden
    table = weights.float32("emb.pos").reshape(-1, hidden) + weights.float32("emb.type")[:hidden]
    length = graph.node("Shape", (ids,), "length", attributes={"start": 1, "end": 2})
    zero = _integers(graph, "ints.zero", [0])
    positions = graph.node("Slice", (graph.constant("positions.table", table), zero, length, zero), "positions")
    return graph.node(
        "LayerNormalization",
        (graph.node("Add", (words, positions), "embedded"), *_layer_norm(graph, weights, "emb.ln")),
        "embedded.normal",
        attributes={"axis": -1, "epsilon": float(weights.shape.layer_norm_epsilon)},
    )


def _layer(graph: OnnxGraph, weights: E5Weights, name: str, hidden: str, key_mask: str) -> str:
    """One post-norm BERT layer: attention, add and normalise, feed-forward with exact GELU, add and normalise."""
    shape = weights.shape
    query, key, value = (_product(graph, weights, f"{name}.{part}", hidden, shape.hidden) for part in "qkv")
    biases = np.concatenate([weights.float32(f"{name}.{part}.b") for part in "qkv"])
    attention = graph.node(
        "MultiHeadAttention",
        (query, key, value, graph.constant(f"{name}.qkv.b", biases), key_mask),
        f"{name}.attention",
        domain=_FUSED,
        attributes={"num_heads": shape.heads},
    )
    projected = _product(graph, weights, f"{name}.ao", attention, shape.hidden)
    attended = _add_and_normalise(graph, weights, f"{name}.aln", projected, hidden, f"{name}.ao")
    wide = _product(graph, weights, f"{name}.fi", attended, shape.hidden)
    bias = graph.constant(f"{name}.fi.b", weights.float32(f"{name}.fi.b"))
    activated = graph.node("BiasGelu", (wide, bias), f"{name}.gelu", domain=_FUSED)
    narrow = _product(graph, weights, f"{name}.fo", activated, shape.intermediate)
    return _add_and_normalise(graph, weights, f"{name}.oln", narrow, attended, f"{name}.fo")


def _product(graph: OnnxGraph, weights: E5Weights, name: str, hidden: str, columns: int) -> str:
    matrix: npt.NDArray[np.float32] = np.ascontiguousarray(weights.quantised(f"{name}.w", columns).dequantised().T)
    return graph.node("MatMul", (hidden, graph.constant(f"{name}.w", matrix)), f"{name}.product")


def _add_and_normalise(graph: OnnxGraph, weights: E5Weights, name: str, product: str, skip: str, bias_of: str) -> str:
    bias = graph.constant(f"{bias_of}.b", weights.float32(f"{bias_of}.b"))
    return graph.node(
        "SkipLayerNormalization",
        (product, skip, *_layer_norm(graph, weights, name), bias),
        f"{name}.normal",
        domain=_FUSED,
        attributes={"epsilon": float(weights.shape.layer_norm_epsilon)},
    )


def _layer_norm(graph: OnnxGraph, weights: E5Weights, name: str) -> tuple[str, str]:
    return (
        graph.constant(f"{name}.w", weights.float32(f"{name}.w")),
        graph.constant(f"{name}.b", weights.float32(f"{name}.b")),
    )


def _mean_pooled(graph: OnnxGraph, hidden: str, mask: str) -> None:
    """Sum of the unmasked tokens scaled to unit length: the division by their number cancels out."""
    middle = _integers(graph, "axes.middle", [1])
    weights_row = graph.node(
        "Unsqueeze", (graph.node("Cast", (mask,), "mask", attributes={"to": _FLOAT}), middle), "mask.row"
    )
    total = graph.node("Squeeze", (graph.node("MatMul", (weights_row, hidden), "total.row"), middle), "total")
    graph.node("LpNormalization", (total,), EMBEDDING, attributes={"axis": -1, "p": 2})
