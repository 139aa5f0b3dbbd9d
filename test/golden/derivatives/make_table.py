#!/usr/bin/env python3
"""Writes what derivatives.py compares with: PyTorch's derivative of every elementwise operator at the points where pieces
join, near them, far away, and at infinity; and a model that computes them all. Needs PyTorch and onnx.

    make_table.py                 writes table.npz and table.onnx beside itself

Every operator reads x = points + p, its row of the points and a parameter of zeros: after one step of SGD with learning rate
1, -p is the derivative. Points where the result, or in fp16 the derivative, is no finite number are replaced by a harmless
one, with which the rows of a precision that has fewer points are filled, too.
"""
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FINITE = [0.0, 2.0**-10, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 20.0, 20.5, 100.0, 8192.0]
POINTS = {"fp32": FINITE + [2.0**-140, 2.0**60, 2.0**120, np.inf], "bf16": FINITE + [2.0**60, np.inf],
          "fp16": FINITE + [2.0**-24, np.inf]}

# name: (ONNX nodes of x and y, PyTorch's function, a harmless point)
CASES = {}


def case(name, torch_function, *nodes, safe=0.25, constants={}):
    CASES[name] = (nodes, torch_function, safe, constants)


def unary(op, torch_function, safe=0.25, **attributes):
    case(op + "".join(f"_{value}" for value in attributes.values()), torch_function, (op, ["x"], "y", attributes), safe=safe)


def beside(x, number):
    return torch.stack([x, torch.full_like(x, number)], -1)


def paired(name, torch_function, *nodes, number=0.5):
    """An operator over rows [x, number]: the first node's input is `rows`."""
    CASES[name] = ((("Unsqueeze", ["x", "last"], "column", {}), ("Concat", ["column", "numbers"], "rows", {"axis": 1}), *nodes),
                   torch_function, 0.25, {"last": np.array([1]), "numbers": ("column", number)})


unary("Relu", torch.relu)
unary("LeakyRelu", lambda x: F.leaky_relu(x, 0.25), alpha=0.25)
unary("Elu", lambda x: F.elu(x, 1.5), alpha=1.5)
unary("Selu", F.selu)
unary("Celu", lambda x: F.celu(x, 2.0), alpha=2.0)
unary("Softplus", F.softplus)
unary("Softsign", F.softsign)
unary("HardSigmoid", F.hardsigmoid, alpha=1 / 6, beta=0.5)
unary("HardSwish", F.hardswish)
unary("ThresholdedRelu", lambda x: F.threshold(x, 1.0, 0.0), alpha=1.0)
unary("Mish", F.mish)
unary("Gelu", F.gelu)
unary("Gelu", lambda x: F.gelu(x, approximate="tanh"), approximate="tanh")
unary("Sigmoid", torch.sigmoid)
unary("Tanh", torch.tanh)
unary("Erf", torch.erf)
unary("Abs", torch.abs)
unary("Neg", torch.neg)
unary("Sign", torch.sign)
unary("Floor", torch.floor)
unary("Ceil", torch.ceil)
unary("Round", torch.round)
unary("Sqrt", torch.sqrt)
unary("Reciprocal", torch.reciprocal)
unary("Exp", torch.exp)
unary("Log", torch.log)
unary("Sin", torch.sin)
unary("Cos", torch.cos)
unary("Tan", torch.tan)
unary("Acos", torch.acos)
unary("Asin", torch.asin)
unary("Atan", torch.atan)
unary("Sinh", torch.sinh)
unary("Cosh", torch.cosh)
unary("Asinh", torch.asinh)
unary("Acosh", torch.acosh, safe=1.5)
unary("Atanh", torch.atanh)
unary("Shrink", lambda x: F.hardshrink(x, 0.5), lambd=0.5, bias=0.0)
unary("Shrink", lambda x: F.softshrink(x, 0.5), lambd=0.5, bias=0.5)
for exponent in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0):
    case(f"Pow_{exponent}", lambda x, e=exponent: torch.pow(x, e), ("Pow", ["x", "e"], "y", {}), constants={"e": exponent})
case("PRelu", lambda x: F.prelu(x, torch.full((1,), 0.25, dtype=x.dtype)), ("PRelu", ["x", "slope"], "y", {}),
     constants={"slope": 0.25})
case("Max", lambda x: torch.maximum(x, torch.full_like(x, 0.5)), ("Max", ["x", "c"], "y", {}), constants={"c": 0.5})
case("Min", lambda x: torch.minimum(x, torch.full_like(x, 0.5)), ("Min", ["x", "c"], "y", {}), constants={"c": 0.5})
case("clamp", lambda x: torch.clamp(x, -1, 2), ("Clip", ["x", "low", "high"], "y", {}), constants={"low": -1.0, "high": 2.0})
case("clamp_min", lambda x: torch.clamp(x, min=0.5), ("Clip", ["x", "low"], "y", {}), constants={"low": 0.5})
case("relu6", F.relu6, ("Clip", ["x", "low", "high"], "y", {}), constants={"low": 0.0, "high": 6.0})
case("hardtanh", F.hardtanh, ("Clip", ["x", "low", "high"], "y", {}), constants={"low": -1.0, "high": 1.0})
paired("amax", lambda x: beside(x, 0.5).amax(-1), ("ReduceMax", ["rows", "last"], "y", {"keepdims": 0}))
paired("amin", lambda x: beside(x, 0.5).amin(-1), ("ReduceMin", ["rows", "last"], "y", {"keepdims": 0}))
paired("norm", lambda x: torch.linalg.vector_norm(beside(x, 0.0), dim=-1), ("ReduceL2", ["rows", "last"], "y", {"keepdims": 0}),
       number=0.0)
paired("norm1", lambda x: torch.linalg.vector_norm(beside(x, 0.0), ord=1, dim=-1),
       ("ReduceL1", ["rows", "last"], "y", {"keepdims": 0}), number=0.0)
paired("std", lambda x: beside(x, 0.5).std(-1, correction=0), ("ReduceMean", ["rows", "last"], "mean", {"keepdims": 1}),
       ("Sub", ["rows", "mean"], "off", {}), ("Mul", ["off", "off"], "squares", {}),
       ("ReduceMean", ["squares", "last"], "variance", {"keepdims": 0}), ("Sqrt", ["variance"], "y", {}))
paired("logsumexp", lambda x: torch.logsumexp(beside(x, 0.5), -1), ("ReduceLogSumExp", ["rows", "last"], "y", {"keepdims": 0}))


def derivative(function, points, kind):
    x = torch.tensor(points, dtype=kind, requires_grad=True)
    y = function(x)
    y.sum().backward()
    return y.detach().double().numpy(), x.grad.double().numpy()


def record(precision, count):
    """`count` points of each operator, the derivatives there, and which of them are compared."""
    points = np.array([sign * point for point in POINTS[precision] for sign in (1, -1)])
    table, rows = {}, []
    for name, (_, function, safe, _) in CASES.items():
        y, slope = derivative(function, points, KINDS[precision])
        checked = (np.abs(y) < 1e30) & (np.isfinite(slope) if precision == "fp16" else True)  # their sum is finite
        table[name], table[name + ".checked"] = slope, checked
        rows.append(np.append(np.where(checked, points, safe), np.full(count - len(points), safe)))
    return {f"{precision}.{key}": value for key, value in (table | {"points": np.array(rows, np.float32)}).items()}


def build(count):
    """The model of [1, operators, count] points that computes all operators."""
    nodes, parameters, totals = [], [], []

    def constant(value, name):
        nodes.append(helper.make_node("Constant", [], [name], name=name, value=onnx.numpy_helper.from_array(np.asarray(value), name)))
        return name

    nodes.append(helper.make_node("Reshape", ["batched", constant([len(CASES), count], "rows")], ["points"], name="points"))
    for row, (name, (body, _, _, constants)) in enumerate(CASES.items()):
        parameters.append(onnx.numpy_helper.from_array(np.zeros(count, np.float32), f"{name}.p"))
        nodes += [helper.make_node("Gather", ["points", constant(row, f"{name}.index")], [f"{name}.at"], name=f"{name}.at"),
                  helper.make_node("Add", [f"{name}.at", f"{name}.p"], [f"{name}.x"], name=f"{name}.x")]
        made = {}
        for own, value in constants.items():
            if isinstance(value, tuple):
                value = np.full((count, 1), value[1], np.float32)
            made[own] = constant(np.asarray(value, np.int64 if np.asarray(value).dtype.kind == "i" else np.float32), f"{name}.{own}")
        for op, inputs, output, attributes in body:
            nodes.append(helper.make_node(op, [made.get(i, f"{name}.{i}") for i in inputs], [f"{name}.{output}"],
                                          name=f"{name}.{output}", **attributes))
        nodes.append(helper.make_node("Unsqueeze", [f"{name}.y", constant([0], f"{name}.first")], [f"{name}.row"],
                                      name=f"{name}.row"))
        totals.append(f"{name}.row")
    nodes += [helper.make_node("Concat", totals, ["all"], axis=0, name="all"),
              helper.make_node("ReduceSum", ["all"], ["loss"], keepdims=0, name="loss")]
    inputs = [helper.make_tensor_value_info("batched", TensorProto.FLOAT, [1, len(CASES), count])]
    graph = helper.make_graph(nodes, "table", inputs, [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])], parameters)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, HERE / "table.onnx")


def main():
    count = 2 * max(map(len, POINTS.values()))
    build(count)
    table = {}
    for precision in KINDS:
        table.update(record(precision, count))
    np.savez_compressed(HERE / "table.npz", **table)
    print(f"{len(CASES)} operators")


if __name__ == "__main__":
    main()
