#!/usr/bin/env python3
"""The derivatives of elementwise operators, of clamps, norms and extrema, at the points where their pieces join, beside
them, far away and at infinity: all of them against PyTorch's, which derivatives/make_table.py recorded.

    derivatives.py --build BUILD [--precision fp32,bf16,fp16] [--verbose]
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import golden

HERE = pathlib.Path(__file__).parent / "derivatives"
TOLERANCES = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 4e-3}  # of the derivative, or of 1 where it is smaller
RECIPE = """
loss: {kind: output, output: loss}
optimizer: {kind: sgd, lr: 1.0}
data: {kind: arrays, path: points.npz, shuffle: false}
loss_scale: {init: 1}
"""


def differences(build, precision, table):
    """Of each operator: None, or the worst point."""
    with tempfile.TemporaryDirectory(prefix="cleave-derivatives-") as scratch:
        folder = pathlib.Path(scratch)
        points = table[f"{precision}.points"]
        np.savez(folder / "points.npz", batched=points[None])
        recipe = RECIPE if precision == "fp16" else RECIPE.replace("loss_scale: {init: 1}\n", "")
        (folder / "recipe.yaml").write_text(recipe + f"precision: {precision}\n")
        cleave = build / "bin" / "cleave"
        golden.call([cleave, "compile", HERE / f"{precision}.onnx", "--recipe", folder / "recipe.yaml", "--cluster", "cpu:1", "-o",
                     folder / "x.plan"])
        golden.call([cleave, "run", folder / "x.plan", "--steps", 1, "--snapshot", folder / "s", "--quiet"], cwd=folder)
        golden.call([cleave, "export", folder / "s", "-o", folder / "p.safetensors", "--names", "file"])
        trained = golden.read_safetensors(folder / "p.safetensors")
    worst = {}
    for name in sorted(key.split(".", 1)[1] for key in table if key.startswith(precision + ".") and not key.endswith((".checked", ".points"))):
        expected, checked = table[f"{precision}.{name}"], table[f"{precision}.{name}.checked"]
        got = -trained[f"{name}.p"].astype(np.float64)
        bound = TOLERANCES[precision] * np.maximum(1, np.abs(expected))
        with np.errstate(invalid="ignore"):
            same = (got == expected) | (np.abs(got - expected) <= bound) | (np.isnan(got) & np.isnan(expected))
        wrong = np.flatnonzero(checked & ~same)
        worst[name] = [(float(points[i]), float(got[i]), float(expected[i])) for i in wrong]
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--precision", default="fp32,bf16,fp16")
    args = parser.parse_args()
    table = dict(np.load(HERE / "table.npz"))
    passed = failed = 0
    for precision in args.precision.split(","):
        try:
            worst = differences(args.build.resolve(), precision, table)
        except golden.Failure as failure:
            print(f"FAIL derivatives {precision}: {failure}")
            failed += 1
            continue
        for name, wrong in worst.items():
            for point, got, expected in wrong:
                print(f"FAIL derivatives {precision} {name}: at {point:g} {got:g} instead of {expected:g}")
            failed, passed = failed + bool(wrong), passed + (not wrong)
    print(f"derivatives: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
