"""Does ONNX Runtime read what the small encoder writes, and compute what was meant?"""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from memory_service.models.onnx_wire import ExternalData, OnnxGraph


def session(graph: OnnxGraph) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(graph.serialised(), providers=["CPUExecutionProvider"])


def test_a_graph_of_two_nodes_with_named_axes_computes() -> None:
    graph = OnnxGraph("sum", 20)
    rows = graph.input("rows", "float32", ("batch", 3))
    weights = graph.constant("weights", np.arange(6, dtype=np.float32).reshape(3, 2))
    product = graph.node("MatMul", (rows, weights), "product")
    graph.node("LpNormalization", (product,), "unit", attributes={"axis": -1, "p": 2})
    graph.output("unit", "float32", ("batch", 2))

    for batch in (1, 5):
        given = np.random.default_rng(1).random((batch, 3), np.float32)
        (unit,) = session(graph).run(["unit"], {"rows": given})
        expected = given @ np.arange(6, dtype=np.float32).reshape(3, 2)
        np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("element", ["float32", "float16", "uint8", "int32", "int64"])
def test_constants_of_every_type_and_shape_come_back_unchanged(element: str) -> None:
    for shape in ((), (1,), (300,), (2, 3, 4)):
        stored = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 100).astype(element)
        graph = OnnxGraph("constant", 20)
        graph.node("Identity", (graph.constant("stored", stored),), "out")
        graph.output("out", element, shape)

        (out,) = session(graph).run(["out"], {})
        np.testing.assert_array_equal(out, stored)


def test_attributes_of_integers_floats_and_lists_and_operators_of_the_fused_domain_are_understood() -> None:
    graph = OnnxGraph("attributes", 20)
    rows = graph.input("rows", "float32", (2, 3))
    graph.node("Transpose", (rows,), "turned", attributes={"perm": [1, 0]})
    graph.node("LeakyRelu", ("turned",), "leaky", attributes={"alpha": 0.5})
    bias = graph.constant("bias", np.zeros(2, np.float32))
    graph.node("BiasGelu", ("leaky", bias), "out", domain="com.microsoft")
    graph.output("out", "float32", (3, 2))

    given = np.array([[-2, 0, 1], [50, -50, 3]], np.float32)
    (out,) = session(graph).run(["out"], {"rows": given})
    assert out.shape == (3, 2)
    assert out[0, 1] == pytest.approx(50)
    assert out[0, 0] == pytest.approx(-0.158655, abs=1e-4)  # gelu(-1): x / 2 (1 + erf(x / sqrt 2))


def test_large_constants_are_read_from_the_file_beside_the_model(tmp_path: Path) -> None:
    external = ExternalData("numbers.bin")
    graph = OnnxGraph("external", 20, external)
    large, larger = np.arange(3000, dtype=np.float32), np.arange(5000, dtype=np.float32)
    small = np.array([2], np.float32)
    graph.node("Concat", [graph.constant("a", large), graph.constant("b", larger)], "joined", attributes={"axis": 0})
    graph.node("Mul", ["joined", graph.constant("two", small)], "out")
    graph.output("out", "float32", (8000,))
    (tmp_path / "model.onnx").write_bytes(graph.serialised())
    (tmp_path / "numbers.bin").write_bytes(external.content)

    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (out,) = session.run(["out"], {})

    np.testing.assert_array_equal(out, np.concatenate([large, larger]) * 2)
    assert len(graph.serialised()) < 1000
