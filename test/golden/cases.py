#!/usr/bin/env python3
"""Small models that once trained otherwise than in PyTorch: every step's loss and gradient norm on several splits, against
those that PyTorch has in float64.

    cases.py --build BUILD [CASE...]

A case is a folder of cases/ with model.onnx, recipe.yaml, data.npz and expected.json: steps, losses, norms, splits; `refused`
has splits that `compile` must refuse, and a part of its message; `tol` is the bound of losses where it is not 1e-4, a number or
one for each split. trained.npz has running statistics after the steps, by name.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

import golden

HERE = pathlib.Path(__file__).parent / "cases"
SPLITS = {
    "one": (1, []), "zero3": (4, ["--like", "zero3"]), "ddp4": (4, ["--like", "ddp"]), "tp2": (2, ["--mesh", "tp=2"]),
    "mega4": (4, ["--like", "megatron-2021"]), "sp2": (2, ["--like", "megatron-sp"]), "ulysses2": (2, ["--like", "ulysses"]),
    "tp2sp": (2, ["--mesh", "tp=2", "--sequence-parallel"]), "auto3": (3, []), "m2": (1, ["--microbatches", "2"]),
    "pp2": (2, ["--mesh", "pp=2"]),
    "tp4": (4, ["--mesh", "tp=4"]), "dp2tp2": (4, ["--mesh", "dp=2,tp=2"]), "cp2": (2, ["--mesh", "cp=2"]), "auto4": (4, []),
    "ep2": (2, ["--mesh", "ep=2"]), "ep4": (4, ["--mesh", "ep=4"]), "ep2tp2": (4, ["--mesh", "ep=2,tp=2"]),
    "pp2ep2": (4, ["--mesh", "pp=2,ep=2", "--schedule", "1f1b", "--microbatches", "2"]),
    "full": (1, ["--recompute", "full"]), "zero2m2": (2, ["--like", "zero2", "--microbatches", "2"]),
    "pp2m2": (2, ["--mesh", "pp=2", "--schedule", "1f1b", "--microbatches", "2"]),
    "pp2zb": (2, ["--mesh", "pp=2", "--schedule", "zb-h1", "--microbatches", "4"]),
    "pp2full": (2, ["--mesh", "pp=2", "--schedule", "1f1b", "--microbatches", "2", "--recompute", "full"]),
}


def compile_command(build, name, split, plan):
    devices, flags = SPLITS[split]
    folder = HERE / name
    return [build / "bin" / "cleave", "compile", folder / "model.onnx", "--recipe", folder / "recipe.yaml", "--cluster",
            f"cpu:{devices}", "--set", f"data.path={folder.resolve() / 'data.npz'}", *flags, "-o", plan]


def check_refused(build, name, split, message):
    with tempfile.TemporaryDirectory(prefix="cleave-case-") as scratch:
        done = subprocess.run(list(map(str, compile_command(build, name, split, pathlib.Path(scratch) / "x.plan"))),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode not in (1, 2, 3) or message not in done.stderr:
        raise golden.Failure(f"status {done.returncode}, expected a refusal with '{message}': {done.stderr[-500:]}")


def check_statistics(cleave, snapshot, trained):
    """Running means and variances of a snapshot, against PyTorch's."""
    weights = snapshot / "trained.safetensors"
    golden.call([cleave, "export", snapshot, "-o", weights])
    ours = golden.read_safetensors(weights)
    for name, value in numpy.load(trained).items():
        if name not in ours:
            raise golden.Failure(f"the export has no {name}; it has {', '.join(sorted(ours))}")
        error = numpy.abs(ours[name] - value).max() / max(1e-12, numpy.abs(value).max())
        if not error <= golden.LOSS_TOLERANCE:
            raise golden.Failure(f"{name} after the steps is off by {error:.1e}")


def run_case(build, name, split, expected):
    folder, cleave = HERE / name, build / "bin" / "cleave"
    with tempfile.TemporaryDirectory(prefix="cleave-case-") as scratch:
        plan, metrics, snapshots = (pathlib.Path(scratch) / part for part in ("x.plan", "m.jsonl", "snapshots"))
        golden.call(compile_command(build, name, split, plan))
        trained = folder / "trained.npz"
        golden.call([cleave, "run", plan, "--steps", expected["steps"], "--metrics", metrics, "--quiet",
                     *(["--snapshot", snapshots] if trained.exists() else [])])
        if trained.exists():
            check_statistics(cleave, snapshots, trained)
        lines = [json.loads(line) for line in metrics.read_text().splitlines() if '"loss"' in line]
    if len(lines) != len(expected["loss"]):
        raise golden.Failure(f"{len(lines)} steps in the metrics, {len(expected['loss'])} expected")
    tolerance = expected.get("tol", golden.LOSS_TOLERANCE)
    if isinstance(tolerance, dict):
        tolerance = tolerance.get(split, golden.LOSS_TOLERANCE)
    worst, scale = 0, tolerance / golden.LOSS_TOLERANCE
    for k, line in enumerate(lines):
        worst = max(worst, golden.check(f"loss of step {k + 1}", line["loss"], expected["loss"][k], scale * golden.LOSS_TOLERANCE))
        if expected.get("grad_norm"):
            golden.check(f"gradient norm of step {k + 1}", line["grad_norm"], expected["grad_norm"][k],
                         scale * golden.GRADIENT_TOLERANCE)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    passed = failed = 0
    for name in args.cases or sorted(folder.name for folder in HERE.iterdir()):
        expected = json.loads((HERE / name / "expected.json").read_text())
        for split in expected["splits"]:
            try:
                worst = run_case(args.build.resolve(), name, split, expected)
                print(f"PASS case {name} {split}: loss within {worst:.1e}", flush=True)
                passed += 1
            except golden.Failure as failure:
                print(f"FAIL case {name} {split}: {failure}", flush=True)
                failed += 1
        for split, message in expected.get("refused", {}).items():
            try:
                check_refused(args.build.resolve(), name, split, message)
                print(f"PASS case {name} {split}: refused", flush=True)
                passed += 1
            except golden.Failure as failure:
                print(f"FAIL case {name} {split}: {failure}", flush=True)
                failed += 1
    print(f"cases: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
