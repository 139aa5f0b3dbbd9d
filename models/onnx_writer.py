"""ONNX files without the onnx package: only what the model generators here need, written in protobuf's wire format.

    graph = Graph("two-layer")
    w = graph.weight("w", 64, 256)                        # external data that is not written
    two = graph.constant("two", [2.0])                    # whole numbers become int64, others float
    graph.op("MatMul", "/fc/MatMul", ["x", w], ["y"])
    graph.op("Split", "/Split", ["y", "sizes"], ["a", "b"], axis=-1)
    graph.write("net.onnx", inputs=[("x", FLOAT, ["batch", 64])], outputs=[("y", FLOAT, ["batch", 256])])

Field numbers are those of onnx.proto (ONNX 1.22); opset 20, IR version 10.
"""
import struct

FLOAT, INT64, BOOL = 1, 7, 9  # TensorProto.DataType
OPSET, IR_VERSION = 20, 10


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field, value):
    return varint(field << 3) + varint(value)


def chunk(field, value):
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name, dtype, dims, body):
    return b"".join(integer(1, size) for size in dims) + integer(2, dtype) + chunk(8, name) + body


def values(name, entries):
    """A tensor with its elements: a list is a vector, anything else a scalar."""
    flat = entries if isinstance(entries, list) else [entries]
    dims = [len(flat)] if isinstance(entries, list) else []
    if all(isinstance(one, bool) for one in flat):
        return tensor(name, BOOL, dims, chunk(9, bytes(flat)))
    if all(isinstance(one, int) for one in flat):
        return tensor(name, INT64, dims, chunk(9, struct.pack(f"<{len(flat)}q", *flat)))
    return tensor(name, FLOAT, dims, chunk(9, struct.pack(f"<{len(flat)}f", *flat)))


def attribute(name, value):
    """AttributeProto: int, float, text, list of ints, or a tensor as `values` gives it."""
    if isinstance(value, str):
        return chunk(1, name) + chunk(4, value) + integer(20, 3)
    if isinstance(value, bytes):
        return chunk(1, name) + chunk(5, value) + integer(20, 4)
    if isinstance(value, list):
        return chunk(1, name) + b"".join(integer(8, one) for one in value) + integer(20, 7)
    if isinstance(value, float):
        return chunk(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + integer(20, 1)
    return chunk(1, name) + integer(3, value) + integer(20, 2)


def value_info(name, dtype, dims):
    shape = b"".join(chunk(1, chunk(2, size) if isinstance(size, str) else integer(1, size)) for size in dims)
    return chunk(1, name) + chunk(2, chunk(1, integer(1, dtype) + chunk(2, shape)))


class Graph:
    def __init__(self, name):
        self.name, self.nodes, self.tensors, self.end = name, [], [], 0

    def weight(self, name, *shape):
        length = 4
        for size in shape:
            length *= size
        entries = (("location", "weights.bin"), ("offset", str(self.end)), ("length", str(length)))
        body = b"".join(chunk(13, chunk(1, key) + chunk(2, value)) for key, value in entries) + integer(14, 1)
        self.tensors.append(tensor(name, FLOAT, shape, body))
        self.end += (length + 4095) // 4096 * 4096
        return name

    def constant(self, name, entries):
        self.tensors.append(values(name, entries))
        return name

    def op(self, kind, name, inputs, outputs, **attributes):
        self.nodes.append(b"".join(chunk(1, one) for one in inputs) + b"".join(chunk(2, one) for one in outputs) +
                          chunk(3, name) + chunk(4, kind) +
                          b"".join(chunk(5, attribute(*one)) for one in attributes.items()))
        return outputs

    def write(self, path, inputs, outputs, producer="cleave"):
        graph = b"".join(chunk(1, node) for node in self.nodes) + chunk(2, self.name)
        graph += b"".join(chunk(5, one) for one in self.tensors)
        graph += b"".join(chunk(11, value_info(*one)) for one in inputs)
        graph += b"".join(chunk(12, value_info(*one)) for one in outputs)
        with open(path, "wb") as file:
            file.write(integer(1, IR_VERSION) + chunk(2, producer) + chunk(7, graph) + chunk(8, integer(2, OPSET)))
