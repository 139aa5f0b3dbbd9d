#!/usr/bin/env python3
"""Losses that the graph computes, over several microbatches: the same steps as with the whole batch.

    graph_losses.py CLEAVE FOLDER

One model for each form: a mean, a sum, both added, means with a count of their own (bounded or not), a mean of means, sums
of terms with counts of their own, and forms that are none of these (the logarithm of a sum, a product of two, a count of what
the model computes beside another term): there `compile` must warn and name the node.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models"))
from onnx_writer import FLOAT, attribute, chunk, integer, tensor, value_info  # noqa: E402

cleave, folder = sys.argv[1], pathlib.Path(sys.argv[2])
rng = np.random.default_rng(11)
BATCH, STEPS, ROWS = 8, 4, 5


class Graph:
    """Error squares [batch, 5] of a layer of 6 features, in front of a loss."""

    def __init__(self):
        self.nodes, self.weights = [], []
        hidden = self.node("Tanh", [self.node("MatMul", ["x", self.constant("w1", rng.standard_normal((6, 7)))], "a")], "h")
        error = self.node("Sub", [self.node("MatMul", [hidden, self.constant("w2", rng.standard_normal((7, ROWS)))], "b"), "t"], "e")
        self.node("Mul", [error, error], "squares")
        self.node("Mul", ["squares", "mask"], "masked")

    def node(self, kind, inputs, output, **attributes):
        made = b"".join(chunk(1, name) for name in inputs) + chunk(2, output) + chunk(3, output) + chunk(4, kind)
        self.nodes.append(made + b"".join(chunk(5, attribute(*one)) for one in attributes.items()))
        return output

    def constant(self, name, values):
        values = np.asarray(values)
        self.weights.append(tensor(name, FLOAT, values.shape, chunk(9, values.astype("<f4").tobytes())))
        return name

    def reduce(self, kind, value, output, axes=None):
        return self.node(kind, [value], output, keepdims=0, **({"axes": axes} if axes else {}))

    def write(self, path):
        graph = b"".join(chunk(1, node) for node in self.nodes) + chunk(2, "loss")
        graph += b"".join(chunk(5, one) for one in self.weights)
        for name, size in (("x", 6), ("t", ROWS), ("mask", ROWS)):
            graph += chunk(11, value_info(name, FLOAT, ["batch", size]))
        graph += chunk(12, value_info("loss", FLOAT, []))
        path.write_bytes(integer(1, 8) + chunk(7, graph) + chunk(8, chunk(1, "") + integer(2, 11)))


def mean(g):
    g.node("Identity", [g.reduce("ReduceMean", "squares", "m")], "loss")


def total(g):
    g.node("Mul", [g.reduce("ReduceSum", "squares", "s"), g.constant("tenth", np.float32(0.1))], "loss")


def total_and_mean(g):
    decay = g.node("Mul", [g.reduce("ReduceSumSquare", "w1", "norm"), g.constant("rate", np.float32(0.01))], "decay")
    both = g.node("Sub", [g.reduce("ReduceSum", "masked", "s"), g.reduce("ReduceMean", "squares", "m")], "both")
    g.node("Add", [both, decay], "loss")


def mean_of_rows(g):
    g.node("Identity", [g.reduce("ReduceMean", g.reduce("ReduceSum", "squares", "rows", [1]), "m")], "loss")


def masked(g):
    g.node("Div", [g.reduce("ReduceSum", "masked", "s"), g.reduce("ReduceSum", "mask", "n")], "loss")


def bounded(g):  # one microbatch of the first step has no entry at all
    count = g.node("Max", [g.reduce("ReduceSum", "mask", "n"), g.constant("one", np.float32(1))], "bound")
    half = g.node("Mul", [g.reduce("ReduceSum", "masked", "s"), g.constant("half", np.float32(0.5))], "s2")
    g.node("Neg", [g.node("Neg", [g.node("Div", [half, count], "q")], "minus")], "loss")


def mean_over_mean(g):
    g.node("Div", [g.reduce("ReduceMean", "masked", "s"), g.reduce("ReduceMean", "mask", "n")], "loss")


def own_counts(g):  # and a term without samples; the mask has no entry in a microbatch of the first step
    missing = g.node("Sub", [g.constant("one", np.float32(1)), "mask"], "missing")
    seen = g.node("Div", [g.reduce("ReduceSum", "masked", "s"), g.reduce("ReduceSum", "mask", "n")], "seen")
    rest = g.reduce("ReduceSum", g.node("Mul", ["squares", missing], "rest"), "r")
    unseen = g.node("Div", [rest, g.reduce("ReduceSum", missing, "u")], "unseen")
    decay = g.node("Mul", [g.reduce("ReduceSumSquare", "w1", "norm"), g.constant("rate", np.float32(0.01))], "decay")
    part = g.node("Mul", [unseen, g.constant("tenth", np.float32(0.1))], "part")
    g.node("Sum", [seen, part, decay], "loss")


def count_of_rows(g):  # a count for each row, and a mean of what they divide
    rows = g.node("Max", [g.reduce("ReduceSum", "mask", "n", [0]), g.constant("one", np.float32(1))], "bound")
    g.reduce("ReduceMean", g.node("Div", [g.reduce("ReduceSum", "masked", "s", [0]), rows], "means"), "loss")


def root_of_count(g):
    count = g.node("Add", [g.reduce("ReduceSumSquare", "mask", "n"), g.constant("one", np.float32(1))], "more")
    root = g.node("Sqrt", [count], "root")
    both = g.node("Mul", [g.reduce("ReduceMean", "squares", "m"), g.reduce("ReduceMean", "mask", "share")], "both")
    g.node("Add", [g.node("Div", [g.reduce("ReduceSum", "masked", "s"), root], "q"), both], "loss")


def logarithm(g):
    g.node("Log", [g.reduce("ReduceSum", "squares", "s")], "loss")


def product(g):
    g.node("Mul", [g.reduce("ReduceMean", "squares", "m"), g.reduce("ReduceMean", "masked", "s")], "loss")


def count_of_outputs(g):
    large = g.node("Sign", ["squares"], "large")
    mean = g.node("Div", [g.reduce("ReduceSum", "masked", "s"), g.reduce("ReduceSum", large, "n")], "mean")
    g.node("Add", [mean, g.reduce("ReduceMean", "squares", "m")], "loss")


def run(model, recipe, devices, flags):
    plan, metrics = folder / "x.plan", folder / "m.jsonl"
    done = subprocess.run([cleave, "compile", model, "--recipe", recipe, "--cluster", f"cpu:{devices}", *flags, "-o", plan],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{model.name} {flags}: {done.stderr}")
    subprocess.run([cleave, "run", plan, "--steps", str(STEPS), "--metrics", metrics, "--quiet"], check=True)
    verified = subprocess.run([cleave, "verify", plan], capture_output=True, text=True)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [(row["loss"], row["grad_norm"]) for row in rows if "loss" in row], done.stderr, verified


def main():
    folder.mkdir(parents=True, exist_ok=True)
    samples = BATCH * STEPS
    mask = (rng.random((samples, ROWS)) < 0.6).astype("f4")
    mask[: BATCH // 2] = 0
    np.savez(folder / "data.npz", x=rng.standard_normal((samples, 6)).astype("f4"),
             t=rng.standard_normal((samples, ROWS)).astype("f4"), mask=mask)
    recipe = folder / "recipe.yaml"
    recipe.write_text("dims: {batch: 8}\nloss: {kind: output}\noptimizer: {kind: sgd, lr: 0.02}\n"
                      f"data: {{kind: arrays, path: {folder / 'data.npz'}, shuffle: false}}\n")
    met = {logarithm: "loss", product: "loss", count_of_outputs: "mean"}
    for build in (mean, total, total_and_mean, mean_of_rows, masked, bounded, mean_over_mean, own_counts, count_of_rows,
                  root_of_count, *met):
        graph, model = Graph(), folder / f"{build.__name__}.onnx"
        build(graph)
        graph.write(model)
        whole, _, _ = run(model, recipe, 1, [])
        for devices, flags in ((1, ["--microbatches", "2"]), (2, ["--mesh", "dp=2", "--microbatches", "4"]),
                               (2, ["--mesh", "pp=2", "--schedule", "1f1b", "--microbatches", "2"])):
            parts, told, verified = run(model, recipe, devices, flags)
            worst = max(abs(a - b) / abs(b) for row, one in zip(parts, whole) for a, b in zip(row, one))
            if verified.returncode:
                sys.exit(f"{build.__name__} {flags}: verify: {verified.stdout}{verified.stderr}")
            if build in met:
                if f"samples of a batch can meet at '{met[build]}'" not in told or f"meet at '{met[build]}'" not in verified.stdout:
                    sys.exit(f"{build.__name__} {flags}: nothing is said: {told}{verified.stdout}")
            elif not worst < 2e-6 or "can meet" in told:
                sys.exit(f"{build.__name__} {flags}: off by {worst:.1e}, {told}\n{parts}\n{whole}")
    print("graph losses agree")


main()
