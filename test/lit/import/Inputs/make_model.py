"""Writes a small ONNX model without the onnx package: y = Op(x @ w), as the tests of importing need it.

    make_model.py m.onnx                              w lies in the file
    make_model.py m.onnx --data sub/w.bin             w lies in an external file of that location (not written)
    make_model.py m.onnx --ops Relu,my.domain.Odd     operators after the product, each on the one before
    make_model.py m.onnx --aside                      a second output, aside = x @ v
"""
import argparse
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "models"))
from onnx_writer import FLOAT, chunk, integer, tensor, value_info  # noqa: E402


def weight(name, dims, location):
    if location is None:
        count = dims[0] * dims[1]
        return tensor(name, FLOAT, dims, chunk(9, struct.pack(f"<{count}f", *(i / count for i in range(count)))))
    return tensor(name, FLOAT, dims, chunk(13, chunk(1, "location") + chunk(2, location)) + integer(14, 1))


def node(op, inputs, output):
    domain, _, kind = op.rpartition(".")
    return (b"".join(chunk(1, i) for i in inputs) + chunk(2, output) + chunk(3, "node_" + output) + chunk(4, kind) +
            (chunk(7, domain) if domain else b""))


parser = argparse.ArgumentParser()
parser.add_argument("path")
parser.add_argument("--data")
parser.add_argument("--ops", default="Relu")
parser.add_argument("--aside", action="store_true")
arguments = parser.parse_args()

nodes, last = [node("MatMul", ["x", "w"], "h0")], "h0"
for index, op in enumerate(arguments.ops.split(","), 1):
    nodes.append(node(op, [last], f"h{index}"))
    last = f"h{index}"
graph = b"".join(chunk(1, n) for n in nodes) + chunk(2, "g") + chunk(5, weight("w", [8, 4], arguments.data))
graph += chunk(11, value_info("x", FLOAT, ["batch", 8])) + chunk(12, value_info(last, FLOAT, ["batch", 4]))
if arguments.aside:
    graph += chunk(1, node("MatMul", ["x", "v"], "aside")) + chunk(5, weight("v", [8, 4], None))
    graph += chunk(12, value_info("aside", FLOAT, ["batch", 4]))
model = integer(1, 9) + chunk(2, "make_model.py") + chunk(7, graph) + chunk(8, integer(2, 18))
model += chunk(8, chunk(1, "my.domain") + integer(2, 1))
open(arguments.path, "wb").write(model)
