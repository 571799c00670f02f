"""Which ONNX graph computes an encoder of the BERT family?

Input: token ids and mask of shape (batch, sequence).  Output: one vector a text, scaled to unit length.  The operators are ONNX
Runtime's fused ones where those are quicker, the weights float32.  Nothing here reads or writes files, or knows where weights
come from: see `e5_onnx.py` and `onnx_folder.py`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from memory_service.models.onnx_wire import Attribute, OnnxGraph

INPUT_IDS, ATTENTION_MASK, EMBEDDING = "input_ids", "attention_mask", "embedding"
OPSET = 20
FLOAT, _INT32 = 1, 6  # TensorProto.DataType, for Cast
_FUSED = "com.microsoft"

Float32 = npt.NDArray[np.float32]


class BertShape(Protocol):
    """Sizes of the network, as named in BERT's configuration."""

    @property
    def hidden(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def intermediate(self) -> int: ...
    @property
    def layer_norm_epsilon(self) -> float: ...


class BertWeights(Protocol):
    """Tensors by short names: emb.pos, emb.type, emb.ln and, of layer n, ln.{q,k,v,ao,aln,fi,fo,oln}, each with .w and .b."""

    @property
    def shape(self) -> BertShape: ...

    def float32(self, name: str) -> Float32:
        """A tensor, flat."""
        ...

    def matrix(self, name: str, columns: int) -> Float32:
        """A weight of shape (outputs, columns), as torch's Linear keeps it."""
        ...


def inputs(graph: OnnxGraph) -> tuple[str, str]:
    """Ids and mask, both int64 of shape (batch, sequence)."""
    ids = graph.input(INPUT_IDS, "int64", ("batch", "sequence"))
    return ids, graph.input(ATTENTION_MASK, "int64", ("batch", "sequence"))


def encoded(graph: OnnxGraph, weights: BertWeights, words: str, ids: str, mask: str) -> str:
    """The last layer's output from word embeddings, (batch, sequence, hidden)."""
    layout = _layout(graph, ids, mask)
    hidden = _tokens(graph, weights, layout, embeddings(graph, weights, words, ids), "tokens")
    for number in range(weights.shape.layers):
        hidden = layer(graph, weights, f"l{number}", hidden, layout)
    return _padded(graph, layout, hidden, "padded")


@dataclass(frozen=True, slots=True)
class _Layout:
    """How to get from padded texts, (batch, sequence, hidden), to their tokens without padding, (tokens, hidden), and back.

    Only attention needs texts; everything else is computed token by token, and not for padding.
    """

    places: str
    """Of the tokens in the flattened mask."""
    numbers: str
    """(batch, sequence): which token lies there.  Padding has the one before it, which the mask hides."""
    key_mask: str


def _layout(graph: OnnxGraph, ids: str, mask: str) -> _Layout:
    flat = graph.node("Reshape", (mask, integers(graph, "ints.minus_one", [-1])), "mask.flat")
    first_axis = integers(graph, "ints.zero", [0])
    places = graph.node("Squeeze", (graph.node("NonZero", (flat,), "places.row"), first_axis), "places")
    counted = graph.node("CumSum", (flat, first_axis), "counted")
    numbers = graph.node("Sub", (counted, integers(graph, "ints.one", [1])), "numbers.flat")
    return _Layout(
        places=places,
        numbers=graph.node("Reshape", (numbers, graph.node("Shape", (ids,), "shape")), "numbers"),
        key_mask=graph.node("Cast", (mask,), "key_mask", attributes={"to": _INT32}),
    )


def _tokens(graph: OnnxGraph, weights: BertWeights, layout: _Layout, padded: str, name: str) -> str:
    rows = integers(graph, "shape.rows", [-1, weights.shape.hidden])
    flat = graph.node("Reshape", (padded, rows), f"{name}.flat")
    return graph.node("Gather", (flat, layout.places), name)


def _padded(graph: OnnxGraph, layout: _Layout, tokens: str, name: str) -> str:
    return graph.node("Gather", (tokens, layout.numbers), name)


def integers(graph: OnnxGraph, name: str, values: list[int]) -> str:
    return graph.constant(name, np.array(values, np.int64))


def embeddings(graph: OnnxGraph, weights: BertWeights, words: str, ids: str) -> str:
    """Word + position + token type 0 (the only type there is, so it is folded into the positions), normalised."""
    hidden = weights.shape.hidden
    table = weights.float32("emb.pos").reshape(-1, hidden) + weights.float32("emb.type")[:hidden]
    length = graph.node("Shape", (ids,), "length", attributes={"start": 1, "end": 2})
    zero = integers(graph, "ints.zero", [0])
    positions = graph.node("Slice", (graph.constant("positions.table", table), zero, length, zero), "positions")
    return _normalised(graph, weights, "emb.ln", graph.node("Add", (words, positions), "embedded"), "embedded.normal")


def layer(graph: OnnxGraph, weights: BertWeights, name: str, hidden: str, layout: _Layout) -> str:
    """One post-norm BERT layer: attention, add and normalise, feed-forward with exact GELU, add and normalise."""
    shape = weights.shape
    attention = _attention(graph, weights, name, hidden, layout)
    projected = _product(graph, weights, f"{name}.ao", attention, shape.hidden)
    attended = _add_and_normalise(graph, weights, f"{name}.aln", projected, hidden, f"{name}.ao")
    wide = _product(graph, weights, f"{name}.fi", attended, shape.hidden)
    bias = graph.constant(f"{name}.fi.b", weights.float32(f"{name}.fi.b"))
    activated = graph.node("BiasGelu", (wide, bias), f"{name}.gelu", domain=_FUSED)
    narrow = _product(graph, weights, f"{name}.fo", activated, shape.intermediate)
    return _add_and_normalise(graph, weights, f"{name}.oln", narrow, attended, f"{name}.fo")


def _attention(graph: OnnxGraph, weights: BertWeights, name: str, hidden: str, layout: _Layout) -> str:
    shape = weights.shape
    query, key, value = (
        _padded(
            graph, layout, _product(graph, weights, f"{name}.{part}", hidden, shape.hidden), f"{name}.{part}.padded"
        )
        for part in "qkv"
    )
    biases = np.concatenate([weights.float32(f"{name}.{part}.b") for part in "qkv"])
    attended = graph.node(
        "MultiHeadAttention",
        (query, key, value, graph.constant(f"{name}.qkv.b", biases), layout.key_mask),
        f"{name}.attention",
        domain=_FUSED,
        attributes={"num_heads": shape.heads},
    )
    return _tokens(graph, weights, layout, attended, f"{name}.attention.tokens")


def _product(graph: OnnxGraph, weights: BertWeights, name: str, hidden: str, columns: int) -> str:
    matrix: Float32 = np.ascontiguousarray(weights.matrix(f"{name}.w", columns).T)
    return graph.node("MatMul", (hidden, graph.constant(f"{name}.w", matrix)), f"{name}.product")


def _add_and_normalise(graph: OnnxGraph, weights: BertWeights, name: str, product: str, skip: str, bias_of: str) -> str:
    """Three operators and not the fused SkipLayerNormalization, which works number by number: the three take a sixth of its time."""
    bias = graph.constant(f"{bias_of}.b", weights.float32(f"{bias_of}.b"))
    biased = graph.node("Add", (product, bias), f"{bias_of}.biased")
    added = graph.node("Add", (biased, skip), f"{name}.added")
    return _normalised(graph, weights, name, added, f"{name}.normal")


def _normalised(graph: OnnxGraph, weights: BertWeights, name: str, hidden: str, output: str) -> str:
    scale = graph.constant(f"{name}.w", weights.float32(f"{name}.w"))
    shift = graph.constant(f"{name}.b", weights.float32(f"{name}.b"))
    attributes: dict[str, Attribute] = {"axis": -1, "epsilon": float(weights.shape.layer_norm_epsilon)}
    return graph.node("LayerNormalization", (hidden, scale, shift), output, attributes=attributes)


def mean_pooled(graph: OnnxGraph, hidden: str, mask: str) -> None:
    """Sum of the unmasked tokens scaled to unit length: the division by their number cancels out."""
    middle = integers(graph, "axes.middle", [1])
    weights_row = graph.node(
        "Unsqueeze", (graph.node("Cast", (mask,), "mask", attributes={"to": FLOAT}), middle), "mask.row"
    )
    total = graph.node("Squeeze", (graph.node("MatMul", (weights_row, hidden), "total.row"), middle), "total")
    graph.node("LpNormalization", (total,), EMBEDDING, attributes={"axis": -1, "p": 2})


def first_pooled(graph: OnnxGraph, hidden: str) -> None:
    """The first token (CLS) scaled to unit length."""
    token = graph.node(
        "Gather", (hidden, graph.constant("int.zero", np.array(0, np.int64))), "first", attributes={"axis": 1}
    )
    graph.node("LpNormalization", (token,), EMBEDDING, attributes={"axis": -1, "p": 2})
