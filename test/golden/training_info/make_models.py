#!/usr/bin/env python3
"""Models that carry ONNX's training_info, each with a trace of what it says.

    make_models.py [NAME...]

Needs onnx 1.23, numpy and PyTorch; the tests read what is recorded here. NAME.onnx is the model; NAME.npz has the batches
(in order), NAME.trace.npz the loss of every step and every parameter at the end; NAME.yaml is a recipe of what the model
leaves open. Loss and optimizer nodes are run by onnx.reference.ReferenceEvaluator, the Gradient by PyTorch on the same
two layers.
"""
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HERE = pathlib.Path(__file__).parent
TRAINING = "ai.onnx.preview.training"
STEPS, BATCH, SIZES = 8, 8, (5, 9, 3)
PARAMETERS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node
info = helper.make_tensor_value_info


def starts():
    random, (a, b, c) = np.random.default_rng(11), SIZES
    shapes = {"fc1.weight": (b, a), "fc1.bias": (b,), "fc2.weight": (c, b), "fc2.bias": (c,)}
    return {name: (random.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}


def inference(external):
    nodes = [node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], name="fc1", transB=1),
             node("Tanh", ["h"], ["t"], name="tanh"),
             node("Gemm", ["t", "fc2.weight", "fc2.bias"], ["y"], name="fc2", transB=1)]
    tensors = [numpy_helper.from_array(value, name) for name, value in starts().items()]
    for tensor in tensors if external else []:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="missing.bin")
    return helper.make_graph(nodes, "inference", [info("x", FLOAT, ["batch", SIZES[0]])],
                             [info("y", FLOAT, ["batch", SIZES[2]])], tensors)


class Algorithm:
    """The algorithm graph, its update_binding, and an optimizer node for each group of parameters."""

    def __init__(self, classes, rate, count=None, count_first=False, parameters=PARAMETERS):
        self.nodes, self.after, self.tensors, self.bindings, self.states = [], [], [], {}, {}
        self.parameters, self.classes = parameters, classes
        labels = info("labels", INT64, ["batch"]) if classes else info("wanted", FLOAT, ["batch", SIZES[2]])
        self.inputs = [labels]
        if classes:
            self.nodes.append(node("SoftmaxCrossEntropyLoss", ["y", "labels"], ["loss"], name="loss"))
        else:
            self.nodes += [node("Sub", ["y", "wanted"], ["distance"], name="distance"),
                           node("Mul", ["distance", "distance"], ["square"], name="square"),
                           node("ReduceMean", ["square"], ["loss"], name="mean", keepdims=0)]
        self.nodes.append(node("Gradient", [*parameters, "x"], [f"d/{name}" for name in parameters], name="gradient",
                               domain=TRAINING, xs=list(parameters), zs=["x"], y="loss"))
        if rate is None:
            self.inputs.append(info("R", FLOAT, []))
        else:
            self.tensors.append(numpy_helper.from_array(np.float32(rate), "R"))
        self.count = "T"
        if count is not None:
            self.tensors += [numpy_helper.from_array(np.int64(count), "T"), numpy_helper.from_array(np.int64(1), "one")]
            self.after.append(node("Add", ["T", "one"], ["T_next"], name="count"))
            self.bindings["T"], self.states["T"] = "T_next", np.int64(count)
            self.count = "T_next" if count_first else "T"

    def update(self, kind, states, parameters=None, begin=0.0, **attributes):
        parameters = parameters or self.parameters
        old, new = list(parameters), [name + "_new" for name in parameters]
        for state in states:
            for name in parameters:
                of = f"{state}/{name}"
                self.states[of] = np.full_like(starts()[name], begin)
                self.tensors.append(numpy_helper.from_array(self.states[of], of))
            names = [f"{state}/{name}" for name in parameters]
            old += names
            new += [name + "_new" for name in names]
        inputs = ["R", self.count, *parameters, *[f"d/{name}" for name in parameters], *old[len(parameters):]]
        self.after.append(node(kind, inputs, new, name=f"{kind}.{len(self.after)}", domain=TRAINING, **attributes))
        self.bindings |= dict(zip(old, new))

    def descend(self):
        for name in self.parameters:
            self.after += [node("Mul", ["R", f"d/{name}"], [name + "_step"], name="scale/" + name),
                           node("Sub", [name, name + "_step"], [name + "_new"], name="step/" + name)]
            self.bindings[name] = name + "_new"

    def model(self, initialization=None, external=False):
        outputs = [info("loss", FLOAT, [])] + [helper.make_empty_tensor_value_info(name) for name in self.bindings.values()]
        algorithm = helper.make_graph(self.nodes + self.after, "algorithm", self.inputs, outputs, self.tensors)
        model = helper.make_model(inference(external), ir_version=8, producer_name="make_models",
                                  opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(TRAINING, 1)])
        training = model.training_info.add()
        training.algorithm.CopyFrom(algorithm)
        training.update_binding.extend(pairs(self.bindings))
        if initialization:
            graph, bindings = initialization
            training.initialization.CopyFrom(graph)
            training.initialization_binding.extend(pairs(bindings))
        return model


def pairs(bindings):
    return [onnx.StringStringEntryProto(key=key, value=value) for key, value in bindings.items()]


def adam():
    """Update counts from 0: the first step is not corrected."""
    made = Algorithm(classes=True, rate=0.05, count=0)
    made.update("Adam", ["V", "H"], alpha=0.8, beta=0.95, epsilon=1e-3, norm_coefficient=0.02)
    return made


def adam_post():
    """Corrected from the first step on; weights decay after the update, biases do not; the bias of fc2 does not train."""
    made = Algorithm(classes=True, rate=0.05, count=0, count_first=True, parameters=PARAMETERS[:3])
    made.update("Adam", ["V", "H"], parameters=("fc1.weight", "fc2.weight"), epsilon=1e-2, norm_coefficient_post=0.01)
    made.update("Adam", ["V", "H"], parameters=("fc1.bias",), epsilon=1e-2)
    return made


def momentum():
    made = Algorithm(classes=False, rate=0.1, count=0)
    made.update("Momentum", ["V"], alpha=0.9, beta=0.5, mode="standard", norm_coefficient=0.01)
    return made


def nesterov():
    made = Algorithm(classes=False, rate=0.1, count=0)
    for name in PARAMETERS:
        made.update("Momentum", ["V"], parameters=(name,), alpha=0.9, beta=1.0, mode="nesterov", norm_coefficient=0.0)
    return made


def adagrad():
    made = Algorithm(classes=True, rate=0.1, count=0)
    made.update("Adagrad", ["H"], begin=0.05, decay_factor=0.2, epsilon=1e-3)
    return made


def sgd():
    """The rate is an input of the algorithm: the recipe gives it."""
    made = Algorithm(classes=True, rate=None)
    made.descend()
    return made


def record(name, made, lr=0.2):
    model = made.model()
    onnx.save(model, HERE / f"{name}.onnx")
    label = made.inputs[0].name
    forward = helper.make_model(helper.make_graph([*model.graph.node, *made.nodes[:-1]], "forward", [
        *model.graph.input, made.inputs[0], *[info(p, FLOAT, None) for p in PARAMETERS]], [info("loss", FLOAT, [])]),
        ir_version=8, opset_imports=model.opset_import)
    values = starts() | made.states | {"R": np.float32(lr), "one": np.int64(1)}
    values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in made.tensors}
    update = helper.make_model(helper.make_graph(made.after, "update", [
        info(v, INT64 if v in ("T", "one") else FLOAT, None) for v in (*values, *[f"d/{p}" for p in PARAMETERS])],
        [helper.make_empty_tensor_value_info(v) for v in made.bindings.values()]), ir_version=8,
        opset_imports=model.opset_import)
    forward, update = ReferenceEvaluator(forward), ReferenceEvaluator(update)
    random, data, losses = np.random.default_rng(5), {"x": [], label: []}, []
    for _ in range(STEPS):
        x = random.standard_normal((BATCH, SIZES[0])).astype(np.float32)
        wanted = (random.integers(0, SIZES[2], BATCH) if made.classes
                  else random.standard_normal((BATCH, SIZES[2])).astype(np.float32))
        data["x"].append(x)
        data[label].append(wanted)
        current = {p: values[p] for p in PARAMETERS}
        losses.append(float(forward.run(None, {"x": x, label: wanted, **current})[0]))
        tensors = {p: torch.tensor(v, requires_grad=True) for p, v in current.items()}
        y = torch.tanh(torch.tensor(x) @ tensors["fc1.weight"].T + tensors["fc1.bias"])
        y = y @ tensors["fc2.weight"].T + tensors["fc2.bias"]
        loss = (torch.nn.functional.cross_entropy(y, torch.tensor(wanted)) if made.classes
                else ((y - torch.tensor(wanted)) ** 2).mean())
        assert abs(loss.item() - losses[-1]) < 1e-5, (loss.item(), losses)
        loss.backward()
        gradients = {f"d/{p}": tensor.grad.numpy() for p, tensor in tensors.items()}
        wanted_inputs = {one.name for one in update.proto_.graph.input}
        new = update.run(None, {k: v for k, v in (values | gradients).items() if k in wanted_inputs})
        values |= {key: np.asarray(value, values[key].dtype) for key, value in zip(made.bindings, new)}
    np.savez(HERE / f"{name}.npz", **{key: np.concatenate(batches) for key, batches in data.items()})
    np.savez(HERE / f"{name}.trace.npz", losses=np.array(losses), **{f"final/{p}": values[p] for p in PARAMETERS})
    rate = "" if "R" in {tensor.name for tensor in made.tensors} else f"optimizer: {{lr: {lr}}}\n"
    (HERE / f"{name}.yaml").write_text(f"dims: {{batch: {BATCH}}}\n{rate}"
                                       f"data: {{kind: arrays, path: {name}.npz, shuffle: false}}\n")
    print(name, losses)


def initialized():
    """Its weights' file is missing; they begin as the initialization graph says."""
    kinds = {"fc1.weight": node("RandomNormal", [], ["n"], mean=0.5, scale=0.1, shape=[SIZES[1], SIZES[0]]),
             "fc1.bias": node("ConstantOfShape", ["shape"], ["c"], value=helper.make_tensor("v", FLOAT, [1], [0.25])),
             "fc2.weight": node("RandomUniform", [], ["u"], low=-0.1, high=0.3, shape=[SIZES[2], SIZES[1]]),
             "fc2.bias": node("ConstantOfShape", ["shape2"], ["z"])}
    shapes = [numpy_helper.from_array(np.array([size], np.int64), name)
              for name, size in (("shape", SIZES[1]), ("shape2", SIZES[2]))]
    graph = helper.make_graph(list(kinds.values()), "initialization", [],
                              [helper.make_empty_tensor_value_info(one.output[0]) for one in kinds.values()], shapes)
    bindings = {name: one.output[0] for name, one in kinds.items()}
    onnx.save(adam().model((graph, bindings), external=True), HERE / "initialized.onnx")


if __name__ == "__main__":
    for made in (adam, adam_post, momentum, nesterov, adagrad, sgd):
        if made.__name__ in (sys.argv[1:] or [made.__name__]):
            record(made.__name__, made())
    initialized()
