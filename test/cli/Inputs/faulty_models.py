"""Writes the models of faults.test into a folder: each has one fault of the kind its name says."""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models"))
from onnx_writer import BOOL, FLOAT, INT64, chunk, integer, tensor, value_info  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])


def ints(name, values, dims=None):
    dims = [len(values)] if dims is None else dims
    return chunk(5, tensor(name, INT64, dims, chunk(9, struct.pack(f"<{len(values)}q", *values))))


def floats(name, values, dims=None):
    dims = [len(values)] if dims is None else dims
    return chunk(5, tensor(name, FLOAT, dims, chunk(9, struct.pack(f"<{len(values)}f", *values))))


def number(name, value):
    return chunk(5, chunk(1, name) + integer(3, value) + integer(20, 2))


def word(name, value):
    return chunk(5, chunk(1, name) + chunk(4, value) + integer(20, 3))


def graph_attribute(name, graph):
    return chunk(5, chunk(1, name) + chunk(6, graph) + integer(20, 5))


def node(op, inputs, outputs, name="n", attributes=b"", domain=""):
    return chunk(1, b"".join(chunk(1, i) for i in inputs) + b"".join(chunk(2, o) for o in outputs) + chunk(3, name) +
                 chunk(4, op) + (chunk(7, domain) if domain else b"") + attributes)


def write(name, nodes, inputs=b"", functions=b"", shape=(8, 4)):
    graph = nodes + chunk(2, "g") + chunk(11, value_info("x", FLOAT, list(shape))) + inputs
    graph += chunk(12, chunk(1, "y"))
    model = integer(1, 9) + chunk(7, graph) + chunk(8, integer(2, 17)) + functions
    if functions:
        model += chunk(8, chunk(1, "f") + integer(2, 1))
    (FOLDER / name).write_bytes(model)


write("concat.onnx", node("Shape", ["x"], ["s"], "s") + node("Concat", ["s", "d"], ["y"], attributes=number("axis", 0)),
      ints("d", [4], []), shape=("batch", 4))
write("lrn.onnx", node("LRN", ["x"], ["y"], attributes=number("size", -1 % 2**64)))
write("direction.onnx", node("GRU", ["x", "w", "w"], ["y"], attributes=word("direction", "nearest")),
      floats("w", [0] * 12, [1, 3, 4]), shape=(2, 1, 4))
write("onehot.onnx", node("OneHot", ["i", "d", "v"], ["y"]),
      ints("i", [1, 2, 3]) + ints("d", [10**12], []) + floats("v", [0, 1]), shape=("batch", 4))
write("range.onnx", node("Range", ["a", "b", "c"], ["y"]),
      floats("a", [0], []) + floats("b", [1e38], []) + floats("c", [1e-3], []))
write("expand.onnx", node("Expand", ["x", "s"], ["y"]), ints("s", [2**62, 4]), shape=(1, 4))
write("sequence_map.onnx", node("SequenceMap", ["x"], ["y"]))
write("empty.onnx", node("Tan", ["x"], ["y"]), shape=(0, 4))
write("topk.onnx", node("TopK", ["x"], ["y", "z"]))
branch = node("Identity", ["b"], ["c"], "i") + chunk(2, "b") + chunk(11, value_info("b", FLOAT, [1])) + chunk(12, chunk(1, "c"))
write("branch.onnx", node("If", ["c"], ["y"],
                          attributes=graph_attribute("then_branch", branch) + graph_attribute("else_branch", branch)),
      chunk(5, tensor("c", BOOL, [], chunk(9, b"\1"))))
write("group.onnx", node("GroupNormalization", ["x", "w", "w"], ["y"], attributes=number("num_groups", 2)),
      floats("w", [1, 1, 1, 1]))

depth = 40
calls = b""
for level in range(depth):
    inner = ("Relu", "") if level == depth - 1 else (f"F{level + 1}", "f")
    # of FunctionProto: name 1, input 4, output 5, node 7, opset_import 9, domain 10
    nodes = b""
    for operands, result, name in ((["a"], "h", "l"), (["h"], "b", "r")):
        inside = (b"".join(chunk(1, i) for i in operands) + chunk(2, result) + chunk(3, name) + chunk(4, inner[0]) +
                  (chunk(7, inner[1]) if inner[1] else b""))
        nodes += chunk(7, inside)
    calls += chunk(25, chunk(1, f"F{level}") + chunk(4, "a") + chunk(5, "b") + nodes + chunk(9, integer(2, 17)) +
                   chunk(9, chunk(1, "f") + integer(2, 1)) + chunk(10, "f"))
write("bomb.onnx", node("F0", ["x"], ["y"], domain="f"), functions=calls)

outside = tensor("w", FLOAT, [4, 4], chunk(13, chunk(1, "location") + chunk(2, "pipe")) + integer(14, 1))
write("fifo.onnx", node("MatMul", ["x", "w"], ["y"]), chunk(5, outside))
write("window.onnx", node("MaxPool", ["x"], ["y"], attributes=chunk(
    5, chunk(1, "kernel_shape") + integer(8, 3) + integer(8, 3) + integer(20, 7))), shape=("batch", 2, "height", "width"))
