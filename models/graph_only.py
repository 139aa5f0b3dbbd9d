"""What the export scripts do to their ONNX files. drop_weights turns one into its graph: weights of 1,024 elements and more become external data that is not there.

What is only compared (a causal mask) is no weight: the graph would not compute the same without it."""
import pathlib

import onnx


def drop_metadata(path):
    """Remove what the exporter notes of the exporting machine: stack traces with its paths."""
    model = onnx.load(path, load_external_data=False)
    model.graph.ClearField("metadata_props")
    for message in list(model.graph.node) + list(model.graph.value_info) + list(model.graph.input) + \
            list(model.graph.output) + list(model.graph.initializer):
        message.ClearField("metadata_props")
        message.ClearField("doc_string")
    onnx.save(model, path)


def drop_weights(path):
    model = onnx.load(path)
    offset = 0
    readers = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    for tensor in model.graph.initializer:
        count = 1
        for size in tensor.dims:
            count *= size
        if tensor.data_type != onnx.TensorProto.FLOAT or count < 1024 or readers.get(tensor.name) == {"Equal"}:
            continue
        for field in ("raw_data", "float_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", pathlib.Path(path).stem + ".weights"), ("offset", offset), ("length", 4 * count)):
            tensor.external_data.add(key=key, value=str(value))
        offset += -(-4 * count // 4096) * 4096
    onnx.save(model, path)
