"""Writes a small ONNX model without the onnx package: y = Op(x @ w), as the tests of importing need it.

    make_model.py m.onnx                              w lies in the file
    make_model.py m.onnx --data sub/w.bin             w lies in an external file of that location (not written)
    make_model.py m.onnx --ops Relu,my.domain.Odd     operators after the product, each on the one before
    make_model.py m.onnx --aside                      a second output, aside = x @ v
"""
import argparse
import struct


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A protobuf field: an integer, or bytes, text or a message (bytes)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def value_info(name, dims):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))  # float32


def tensor(name, dims, location):
    out = b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, name)
    if location is None:
        count = dims[0] * dims[1]
        return out + field(9, struct.pack(f"<{count}f", *(i / count for i in range(count))))
    return out + field(13, field(1, "location") + field(2, location)) + field(14, 1)


def node(op, inputs, output):
    domain, _, kind = op.rpartition(".")
    return (b"".join(field(1, i) for i in inputs) + field(2, output) + field(3, "node_" + output) + field(4, kind) +
            (field(7, domain) if domain else b""))


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
graph = b"".join(field(1, n) for n in nodes) + field(2, "g") + field(5, tensor("w", [8, 4], arguments.data))
graph += field(11, value_info("x", ["batch", 8])) + field(12, value_info(last, ["batch", 4]))
if arguments.aside:
    graph += field(1, node("MatMul", ["x", "v"], "aside")) + field(5, tensor("v", [8, 4], None))
    graph += field(12, value_info("aside", ["batch", 4]))
model = field(1, 9) + field(2, "make_model.py") + field(7, graph) + field(8, field(2, 18))
model += field(8, field(1, "my.domain") + field(2, 1))
open(arguments.path, "wb").write(model)
