#!/usr/bin/env python3
"""Are the collectives that an estimate lists those of the plan that is compiled from the same decision?

    estimated_collectives.py MODEL.onnx RECIPE.yaml CLUSTER KINDS FLAGS...

KINDS: "all_gather:dp,send:pp", of which bytes a step are compared; within 2 %, of what is small within 256 bytes. What
one collective does over several axes is what one over each of them does: plans join them.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

INNERMOST = ["tp_col", "tp", "tp_row", "ep", "cp", "tp_depth", "fsdp", "dp", "pp"]


def bytes_of(report):
    sums = collections.Counter()
    for one in report["collectives"]:
        axes = sorted((axis for axis in one["axes"] if report["mesh"].get(axis, 1) > 1), key=INNERMOST.index)
        size = one["bytes"]
        for axis in axes:
            sums[f"{one['op']}:{axis}"] += size
            if one["op"] in ("reduce_scatter", "all_gather"):
                size /= report["mesh"][axis]
    return sums


def main():
    model, recipe, cluster, kinds, *flags = sys.argv[1:]
    given = [model, "--recipe", recipe, "--cluster", cluster, *flags, "--json"]
    with tempfile.TemporaryDirectory() as scratch:
        plan = str(pathlib.Path(scratch) / "x.plan")
        reports = [json.loads(subprocess.run(["cleave", *command], check=True, capture_output=True, text=True).stdout)
                   for command in (["estimate", *given], ["compile", *given, "-o", plan])]
    estimated, planned = map(bytes_of, reports)
    wrong = [f"{kind}: {estimated[kind]:.0f} bytes estimated, {planned[kind]:.0f} in the plan" for kind in kinds.split(",")
             if abs(estimated[kind] - planned[kind]) > max(0.02 * planned[kind], 256)]
    missing = [f"{kind}: none in the plan" for kind in kinds.split(",") if planned[kind] == 0]
    print("\n".join(wrong + missing) or f"{kinds}: equal")
    return 1 if wrong or missing else 0


sys.exit(main())
