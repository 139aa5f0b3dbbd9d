#!/usr/bin/env python3
"""Folders of onnxruntime-training's artifacts, each with what onnxruntime-training itself makes of training it.

    make_artifacts.py [NAME...]

Needs onnxruntime-training 1.19.2, onnx 1.16, numpy below 2 and PyTorch (which it imports), in an environment of their own;
the tests read what is recorded here. A folder gets, beside the artifacts: samples.npz (STEPS batches, in order),
trace.npz (the loss of every step, every parameter at the end) and recipe.yaml (what the artifacts leave open).
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime.training.api as api
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.training import artifacts, onnxblock

HERE = pathlib.Path(__file__).parent
STEPS, BATCH, OPSET = 8, 8, 17
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    def __init__(self, seed):
        self.random, self.nodes, self.initializers = np.random.default_rng(seed), [], []

    def weight(self, name, *shape, scale=None, mean=0.0):
        scale = scale or 1 / np.sqrt(shape[-1])
        values = mean + self.random.standard_normal(shape) * scale
        return self.constant(name, values.astype(np.float32))

    def constant(self, name, values):
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def op(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output + "/" + kind, **attributes))
        return output

    def linear(self, x, name, size_in, size_out):
        return self.op("Gemm", [x, self.weight(name + ".weight", size_out, size_in),
                                self.weight(name + ".bias", size_out)], name, transB=1)

    def model(self, inputs, output):
        value = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, ["batch", *shape])
        graph = helper.make_graph(self.nodes, "graph", [value(*one) for one in inputs], [value(*output)], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def mlp():
    g = Graph(1)
    x = g.op("Relu", [g.linear("x", "fc1", 6, 12)], "hidden")
    x = g.op("Tanh", [g.linear(x, "fc2", 12, 12)], "hidden2")
    g.linear(x, "logits", 12, 4)
    sample = lambda random: {"x": random.standard_normal((BATCH, 6)).astype(np.float32),
                             "labels": random.integers(0, 4, BATCH)}
    return dict(model=g.model([("x", FLOAT, [6])], ("logits", FLOAT, [4])), sample=sample, frozen=["fc2.bias"],
                loss=artifacts.LossType.CrossEntropyLoss, optimizer=artifacts.OptimType.AdamW, lr=0.01)


def conv():
    g = Graph(2)
    x = g.op("Conv", ["x", g.weight("conv1.weight", 4, 2, 3, 3, scale=0.3), g.weight("conv1.bias", 4)], "c1",
             kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = g.op("MaxPool", [g.op("Relu", [x], "r1")], "p1", kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Conv", [x, g.weight("conv2.weight", 4, 4, 3, 3, scale=0.3)], "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = g.op("Flatten", [g.op("Sigmoid", [x], "r2")], "flat")
    g.linear(x, "logits", 36, 3)
    sample = lambda random: {"x": random.standard_normal((BATCH, 2, 6, 6)).astype(np.float32),
                             "target": random.integers(0, 2, (BATCH, 3)).astype(np.float32)}
    return dict(model=g.model([("x", FLOAT, [2, 6, 6])], ("logits", FLOAT, [3])), sample=sample, frozen=[],
                loss=artifacts.LossType.BCEWithLogitsLoss, optimizer=artifacts.OptimType.SGD, lr=0.5)


def transformer():
    size, heads, length, vocabulary = 8, 2, 5, 11
    g = Graph(3)
    shape = lambda name, *sizes: g.constant(name, np.array(sizes, np.int64))
    product = lambda x, name, a, b: g.op("MatMul", [x, g.weight(name, a, b)], name + ".out")

    def norm(x, name):
        inputs = [x, g.weight(name + ".scale", size, scale=0.1, mean=1.0), g.weight(name + ".bias", size, scale=0.1)]
        outputs = [name, name + ".mean", name + ".deviation"]  # its gradient reads all three
        g.nodes.append(helper.make_node("LayerNormalization", inputs, outputs, name=name, axis=-1))
        return name

    x = g.op("Gather", [g.weight("tokens.weight", vocabulary, size, scale=0.5), "ids"], "tokens", axis=0)
    x = g.op("Add", [x, g.weight("positions.weight", length, size, scale=0.5)], "embedded")
    y = norm(x, "ln1")
    split = shape("split", 0, 0, heads, size // heads)
    parts = {}
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        part = g.op("Reshape", [product(y, f"attention.{name}.weight", size, size), split], name + ".split")
        parts[name] = g.op("Transpose", [part], name, perm=perm)
    scores = g.op("Mul", [g.op("MatMul", [parts["q"], parts["k"]], "raw"),
                          g.constant("scale", np.float32((size // heads) ** -0.5))], "scores")
    y = g.op("MatMul", [g.op("Softmax", [scores], "attention", axis=-1), parts["v"]], "mixed")
    y = g.op("Reshape", [g.op("Transpose", [y], "joined", perm=[0, 2, 1, 3]), shape("whole", 0, 0, size)], "context")
    x = g.op("Add", [x, product(y, "attention.out.weight", size, size)], "x1")
    y = g.op("Relu", [product(norm(x, "ln2"), "mlp.in.weight", size, 2 * size)], "mlp.hidden")
    x = g.op("Add", [x, product(y, "mlp.out.weight", 2 * size, size)], "x2")
    g.op("MatMul", [norm(x, "ln3"), g.weight("head.weight", size, vocabulary)], "logits")

    sample = lambda random: {"ids": random.integers(0, vocabulary, (BATCH, length)),
                             "target": random.standard_normal((BATCH, length, vocabulary)).astype(np.float32)}
    optimizer = onnxblock.optim.AdamW(betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1,
                                      clip_grad=onnxblock.optim.ClipGradNorm(0.25))
    return dict(model=g.model([("ids", INT64, [length])], ("logits", FLOAT, [length, vocabulary])), sample=sample,
                frozen=["positions.weight", "ln1.bias"], loss=artifacts.LossType.MSELoss, optimizer=optimizer, lr=0.02)


def l1():
    g = Graph(4)
    x = g.op("Tanh", [g.linear("x", "fc1", 5, 7)], "hidden")
    g.linear(x, "y", 7, 3)
    sample = lambda random: {"x": random.standard_normal((BATCH, 5)).astype(np.float32),
                             "target": random.standard_normal((BATCH, 3)).astype(np.float32)}
    return dict(model=g.model([("x", FLOAT, [5])], ("y", FLOAT, [3])), sample=sample, frozen=[],
                loss=artifacts.LossType.L1Loss, optimizer=artifacts.OptimType.AdamW, lr=0.01, prefix="l1_")


def dropout():
    """Trained with half of its hidden layer dropped at random: only that it is so can be tested, so there is no trace."""
    g = Graph(5)
    x = g.op("Relu", [g.linear("x", "fc1", 6, 12)], "hidden")
    for i in range(2):
        inputs = [x, g.constant(f"ratio{i}", np.float32(0.5)), g.constant(f"training{i}", np.bool_(True))]
        g.nodes.append(helper.make_node("Dropout", inputs, [f"dropped{i}", f"mask{i}"], name=f"dropout{i}"))
        x = f"dropped{i}"
    g.linear(x, "logits", 12, 4)
    return mlp() | dict(model=g.model([("x", FLOAT, [6])], ("logits", FLOAT, [4])), frozen=[])


def make(name, model, sample, frozen, loss, optimizer, lr, prefix=""):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    floats = [one.name for one in model.graph.initializer if one.data_type == FLOAT and one.dims]
    trained = [one for one in floats if one not in frozen]
    artifacts.generate_artifacts(model, requires_grad=trained, frozen_params=frozen, loss=loss, optimizer=optimizer,
                                 artifact_directory=folder, prefix=prefix)
    path = lambda file: str(folder / (prefix + file))
    state = api.CheckpointState.load_checkpoint(path("checkpoint"))
    module = api.Module(path("training_model.onnx"), state, path("eval_model.onnx"))
    optimizer = api.Optimizer(path("optimizer_model.onnx"), module)
    optimizer.set_learning_rate(lr)
    random = np.random.default_rng(7)
    batches, losses = [sample(random) for _ in range(STEPS)], []
    for batch in batches:
        module.train()
        losses.append(float(module(*batch.values())))
        optimizer.step()
        module.lazy_reset_grad()
    finals = {f"final/{one}": state.parameters[one].data for one in floats}
    np.savez(folder / "samples.npz", **{key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]})
    if name != "dropout":
        np.savez(folder / "trace.npz", losses=np.array(losses), **finals)
    (folder / "recipe.yaml").write_text(f"dims: {{batch: {BATCH}}}\noptimizer: {{lr: {lr}}}\n"
                                        "data: {kind: arrays, path: samples.npz, shuffle: false}\n")
    print(name, losses)


if __name__ == "__main__":
    for made in (mlp, conv, transformer, l1, dropout):
        if made.__name__ in (sys.argv[1:] or [made.__name__]):
            make(made.__name__, **made())
