#!/usr/bin/env python3
"""The derivatives of elementwise operators, of clamps, norms and extrema, at the points where their pieces join, beside
them, far away and at infinity, and the gradients of operators that are no elementwise functions: all of them against
PyTorch's, which derivatives/make_table.py and derivatives/make_operators.py recorded.

    derivatives.py --build BUILD [--of fp32,bf16,fp16,operators]
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import golden

HERE = pathlib.Path(__file__).parent / "derivatives"
GRADIENT_TOLERANCE = 1e-4  # of a gradient, or of the operand's largest where it is smaller: sums round differently
TOLERANCES = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 4e-3}  # of the derivative, or of 1 where it is smaller
RECIPE = """
loss: {kind: output, output: loss}
optimizer: {kind: sgd, lr: 1.0}
data: {kind: arrays, path: points.npz, shuffle: false}
loss_scale: {init: 1}
"""


def after_a_step(build, model, precision, batch, further=""):
    """The parameters of a model after a step with learning rate 1."""
    with tempfile.TemporaryDirectory(prefix="cleave-derivatives-") as scratch:
        folder = pathlib.Path(scratch)
        np.savez(folder / "points.npz", batched=batch)
        recipe = RECIPE if precision == "fp16" else RECIPE.replace("loss_scale: {init: 1}\n", "")
        (folder / "recipe.yaml").write_text(recipe + f"precision: {precision}\n" + further)
        cleave = build / "bin" / "cleave"
        golden.call([cleave, "compile", model, "--recipe", folder / "recipe.yaml", "--cluster", "cpu:1", "-o", folder / "x.plan"])
        golden.call([cleave, "run", folder / "x.plan", "--steps", 1, "--snapshot", folder / "s", "--quiet"], cwd=folder)
        golden.call([cleave, "export", folder / "s", "-o", folder / "p.safetensors", "--names", "file"])
        return golden.read_safetensors(folder / "p.safetensors")


def wrong_gradients(build):
    """The elements of each operator's operands whose gradient is another than PyTorch's."""
    table = dict(np.load(HERE / "operators.npz"))
    trained = after_a_step(build, HERE / "operators.onnx", "fp32", np.zeros((1, 1), np.float32), "trainable: [\"*\"]\n")
    worst = {}
    for name, (before, expected) in table.items():
        if name not in trained:
            raise golden.Failure(f"operators: {name} does not train")
        got = before.astype(np.float64) - trained[name].astype(np.float64)
        # A step rounds to the parameter's own precision.
        bound = GRADIENT_TOLERANCE * max(np.abs(expected).max(), 1e-3) + 2.0**-22 * np.maximum(np.abs(before), np.abs(expected))
        wrong = np.argwhere(~(np.abs(got - expected) <= bound))
        worst[name] = [(str(tuple(map(int, i))), float(got[tuple(i)]), float(expected[tuple(i)])) for i in wrong[:5]]
    return worst


def differences(build, precision, table):
    """The points of each operator where its derivative is another than PyTorch's."""
    points = table[f"{precision}.points"]  # [operators, points]
    trained = after_a_step(build, HERE / "table.onnx", precision, points[None])
    worst = {}
    names = [key.split(".", 1)[1] for key in table if key.startswith(precision + ".") and not key.endswith((".checked", ".points"))]
    for name, at in zip(names, points, strict=True):
        expected, checked = table[f"{precision}.{name}"], table[f"{precision}.{name}.checked"]
        got = -trained[f"{name}.p"].astype(np.float64)[:len(expected)]
        bound = TOLERANCES[precision] * np.maximum(1, np.abs(expected))
        with np.errstate(invalid="ignore"):
            same = (got == expected) | (np.abs(got - expected) <= bound) | (np.isnan(got) & np.isnan(expected))
        wrong = np.flatnonzero(checked & ~same)
        worst[name] = [(f"{at[i]:g}", float(got[i]), float(expected[i])) for i in wrong]
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--of", default="fp32,bf16,fp16,operators")
    args = parser.parse_args()
    table = dict(np.load(HERE / "table.npz"))
    passed = failed = 0
    for precision in args.of.split(","):
        try:
            build = args.build.resolve()
            worst = wrong_gradients(build) if precision == "operators" else differences(build, precision, table)
        except golden.Failure as failure:
            print(f"FAIL derivatives {precision}: {failure}")
            failed += 1
            continue
        for name, wrong in worst.items():
            for point, got, expected in wrong:
                print(f"FAIL derivatives {precision} {name}: at {point} {got:g} instead of {expected:g}")
            failed, passed = failed + bool(wrong), passed + (not wrong)
    print(f"derivatives: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
