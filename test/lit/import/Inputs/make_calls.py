"""Writes an ONNX model without the onnx package, whose two nodes of one name call one function: y = Tanh(Tanh(x w) v).

    make_calls.py m.onnx
"""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "models"))
from onnx_writer import FLOAT, chunk, integer, tensor, value_info  # noqa: E402


def node(op, inputs, output, name="", domain=""):
    return (b"".join(chunk(1, i) for i in inputs) + chunk(2, output) + (chunk(3, name) if name else b"") + chunk(4, op) +
            (chunk(7, domain) if domain else b""))


def weight(name):
    return tensor(name, FLOAT, [4, 4], chunk(9, struct.pack("<16f", *(i / 16 for i in range(16)))))


function = chunk(1, "Dense") + chunk(4, "X") + chunk(4, "W") + chunk(5, "Y") + chunk(10, "my")
function += chunk(7, node("MatMul", ["X", "W"], "product", "matmul")) + chunk(7, node("Tanh", ["product"], "Y", "tanh"))
function += chunk(9, chunk(1, "") + integer(2, 18))
graph = chunk(1, node("Dense", ["x", "w"], "h", "dense", "my")) + chunk(1, node("Dense", ["h", "v"], "y", "dense", "my"))
graph += chunk(2, "g") + chunk(5, weight("w")) + chunk(5, weight("v"))
graph += chunk(11, value_info("x", FLOAT, ["batch", 4])) + chunk(12, value_info("y", FLOAT, ["batch", 4]))
model = integer(1, 9) + chunk(2, "make_calls.py") + chunk(7, graph) + chunk(8, integer(2, 18))
model += chunk(8, chunk(1, "my") + integer(2, 1)) + chunk(25, function)
open(sys.argv[1], "wb").write(model)
