"""Step times of onnxruntime-training on minGPT 8x512, whose AdamW clips the gradients' norm at 1 as the recipe does.

    onnxruntime_step.py GRAPH THREADS STEPS     # by a Python that has onnxruntime-training-cpu 1.19.2 and onnx 1.16

Prints a JSON list of seconds. LayerNormalization gets its further outputs, which ONNX Runtime's gradient of it reads.
"""
import importlib.machinery
import json
import pathlib
import sys
import tempfile
import time
import types

for name in "optim", "amp", "ortmodule":  # need PyTorch, and are not used
    stub = types.ModuleType(f"onnxruntime.training.{name}")
    stub.__spec__, stub.ORTModule = importlib.machinery.ModuleSpec(stub.__name__, None), None
    sys.modules[stub.__name__] = stub

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxruntime.training import api, artifacts  # noqa: E402

VOCABULARY, BATCH, BLOCK = 65, 8, 128


def with_weights(path):
    """The graph with drawn weights and its logits as rows; the names of what trains."""
    random, model, trained = np.random.default_rng(0), onnx.load(path, load_external_data=False), []
    model.ir_version = 9
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or not tensor.dims or tensor.name.endswith(".attn.bias"):
            continue
        values = random.normal(0, 0.02, tuple(tensor.dims)).astype(np.float32)
        is_scale = "ln" in tensor.name and tensor.name.endswith("weight")
        tensor.CopyFrom(numpy_helper.from_array(np.ones_like(values) if is_scale else values, tensor.name))
        trained.append(tensor.name)
    for node in model.graph.node:
        while node.op_type == "LayerNormalization" and len(node.output) < 3:
            node.output.append(f"{node.output[0]}.{len(node.output)}")
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, VOCABULARY]), "rows.shape"))
    model.graph.node.append(helper.make_node("Reshape", ["logits", "rows.shape"], ["rows"]))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["rows", VOCABULARY]))
    return model, trained


def main():
    model, trained = with_weights(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(model, requires_grad=trained, loss=artifacts.LossType.CrossEntropyLoss,
                                     optimizer=artifacts.OptimType.AdamW, artifact_directory=folder)
        of = pathlib.Path(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(sys.argv[2])
        state = api.CheckpointState.load_checkpoint(str(of / "checkpoint"))
        module = api.Module(str(of / "training_model.onnx"), state, str(of / "eval_model.onnx"), "cpu", options)
        optimizer = api.Optimizer(str(of / "optimizer_model.onnx"), module)
        module.train()
        optimizer.set_learning_rate(3e-4)
        random, times = np.random.default_rng(1), []
        tokens, labels = random.integers(0, VOCABULARY, (BATCH, BLOCK)), random.integers(0, VOCABULARY, BATCH * BLOCK)
        for _ in range(int(sys.argv[3])):
            start = time.perf_counter()
            module(tokens, labels)
            optimizer.step()
            module.lazy_reset_grad()
            times.append(time.perf_counter() - start)
    print(json.dumps(times))


main()
