"""The written ONNX graph, as the statement needs it: initializers with their bytes, node outputs, fitting edits.

    graph = Graph(onnx.load("model.onnx", load_external_data=False), folder)
    graph.bytes("fc.weight")         # b"..." as they lie in the file, row-major
    graph.rename({"s77": "batch"})   # sizes; values by rename_values
"""
import pathlib

import numpy as np
import onnx
import torch
from onnx import numpy_helper

TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int64": "INT64", "int32": "INT32",
         "int16": "INT16", "int8": "INT8", "uint8": "UINT8", "bool": "BOOL"}


def raw(tensor):
    """A tensor's elements, row-major, as bytes."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


class Graph:
    def __init__(self, model, folder):
        self.model, self.folder = model, pathlib.Path(folder)
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}

    @staticmethod
    def _external(tensor):
        """Where the data of a tensor lie outside the file: {"location": "model.onnx.data", "offset": "64", ...}; else {}."""
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        return {entry.key: entry.value for entry in tensor.external_data} if external else {}

    def has_bytes(self, name):
        """False for a weight that the export left out."""
        where = self._external(self.initializers[name])
        return not where or (self.folder / where["location"]).exists()

    def bytes(self, name):
        """Elements as they lie in memory."""
        tensor = self.initializers[name]
        where = self._external(tensor)
        if where:
            with open(self.folder / where["location"], "rb") as file:
                file.seek(int(where.get("offset", 0)))
                return file.read(int(where["length"])) if "length" in where else file.read()
        return tensor.raw_data if tensor.HasField("raw_data") else numpy_helper.to_array(tensor).tobytes()

    def nodes(self, kind):
        return [node for node in self.model.graph.node if node.op_type == kind and node.domain in ("", "ai.onnx")]

    def source(self, name):
        """The value that Identity nodes pass on under this name."""
        passed = {node.output[0]: node.input[0] for node in self.nodes("Identity")}
        while name in passed:
            name = passed[name]
        return name

    def constant(self, name):
        """The array of an initializer or a Constant's output; None if it is computed."""
        if name in self.initializers:
            return numpy_helper.to_array(self.initializers[name])
        for node in self.nodes("Constant"):
            if name in node.output:
                value = onnx.helper.get_attribute_value(node.attribute[0])
                return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
        return None

    def add_constant(self, name, array):
        """A new Constant in front of all nodes."""
        tensor = numpy_helper.from_array(np.asarray(array), name)
        self.model.graph.node.insert(0, onnx.helper.make_node("Constant", [], [name], value=tensor))
        return name

    def add_initializer(self, name, tensor):
        """A torch tensor, as an initializer that no node reads."""
        kind = onnx.TensorProto.DataType.Value(TYPES[str(tensor.dtype).removeprefix("torch.")])
        self.model.graph.initializer.append(onnx.TensorProto(name=name, data_type=kind, dims=list(tensor.shape), raw_data=raw(tensor)))
        self.initializers[name] = self.model.graph.initializer[-1]
        return name

    def rename_values(self, names):
        """Gives inputs, outputs and what lies between other names; a name in use moves out of the way."""
        names = {old: new for old, new in names.items() if old != new}
        taken = {name for node in self.model.graph.node for name in [*node.input, *node.output]} | set(self.initializers)
        for new in set(names.values()) & (taken - set(names)):
            names[new] = next(f"{new}_{at}" for at in range(2, 10**6) if f"{new}_{at}" not in taken)
        change = lambda name: names.get(name, name)  # noqa: E731
        for node in _all_nodes(self.model.graph):
            node.input[:] = map(change, node.input)
            node.output[:] = map(change, node.output)
        graph = self.model.graph
        for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
            value.name = change(value.name)
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        return names

    def rename_sizes(self, names):
        graph = self.model.graph
        for value in [*graph.input, *graph.output, *graph.value_info]:
            for size in value.type.tensor_type.shape.dim:
                if size.dim_param in names:
                    size.dim_param = names[size.dim_param]


def _all_nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else []:
                yield from _all_nodes(inner)
