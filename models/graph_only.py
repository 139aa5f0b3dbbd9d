"""Turn an ONNX file into its graph: float tensors of 1,024 elements and more become external data that is not there."""
import pathlib

import onnx


def drop_weights(path):
    model = onnx.load(path)
    offset = 0
    for tensor in model.graph.initializer:
        count = 1
        for size in tensor.dims:
            count *= size
        if tensor.data_type != onnx.TensorProto.FLOAT or count < 1024:
            continue
        for field in ("raw_data", "float_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", pathlib.Path(path).stem + ".weights"), ("offset", offset), ("length", 4 * count)):
            tensor.external_data.add(key=key, value=str(value))
        offset += -(-4 * count // 4096) * 4096
    onnx.save(model, path)
