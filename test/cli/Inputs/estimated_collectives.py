#!/usr/bin/env python3
"""Are the collectives that an estimate lists those of the plan that is compiled from the same decision?

    estimated_collectives.py MODEL.onnx RECIPE.yaml CLUSTER KINDS FLAGS...

KINDS: "all_gather:dp,send:pp", of which bytes a step are compared; within 2 %, of what is small within 256 bytes. What
one collective does over several axes is what one over each of them does: plans join them. The tensors that the estimate
names for a kind are among those that the plan's commands of this kind are of, or that their reasons name: what is moved
may be another view of it, before or behind a reshape. Where it names all, they are as many parameters.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import plan_file

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


def fields(data, begin, end, number):
    return [(first, last) for _, first, last in plan_file.messages(data, begin, end, number)]


def moved_by(plan):
    """From kinds ("all_gather:dp") to the tensors of a plan's commands (runtime/plan/plan.proto), and the words of their
    reasons."""
    data = pathlib.Path(plan).read_bytes()
    ops = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "shift"]
    moved, words = collections.defaultdict(set), collections.defaultdict(set)
    texts = lambda lies, number: [data[first:last].decode() for first, last in fields(data, *lies, number)]
    for program in fields(data, plan_file.HEADER, len(data), 4):
        for fragment in fields(data, *program, 2):
            for command in fields(data, *fragment, 3):
                for collective in fields(data, *command, 18):
                    op = data[collective[0] + 1] if data[collective[0]] == 8 else 0  # its first field, left out where 0
                    for axis in texts(collective, 2):
                        moved[f"{ops[op]}:{axis}"].update(texts(collective, 11))
                        words[f"{ops[op]}:{axis}"].update(word for why in texts(collective, 10) for word in why.split())
                for transfer in fields(data, *command, 19):
                    moved["send:pp"].update(texts(transfer, 8))
    return moved, words


def wrong_names(estimated, kinds, moved, words, parameters):
    """What an estimate's rows say of a kind's tensors that is not so in the plan."""
    for kind in kinds:
        op, axis = kind.split(":")
        rows = [row for row in estimated["collectives"] if row["op"] == op and axis in row["axes"]]
        for name in (tensor["name"] for row in rows for tensor in row["tensors"]):
            node = name.split(":")[0]
            if not {name, node} & moved[kind] and node not in words[kind] and name != "gradients' norm":
                yield f"{kind}: '{name}' is not moved by the plan"
        if any(row["tensors_more"] for row in rows):
            continue
        alike = {tensor["name"]: tensor["alike"] for row in rows for tensor in row["tensors"]}
        named = sum(count for name, count in alike.items() if name in parameters)
        others = moved[kind] & parameters
        if named != len(others):
            yield f"{kind}: {named} parameters are named, the plan moves {len(others)}: {sorted(others)}"


def main():
    model, recipe, cluster, kinds, *flags = sys.argv[1:]
    given = [model, "--recipe", recipe, "--cluster", cluster, *flags, "--json"]
    with tempfile.TemporaryDirectory() as scratch:
        plan = str(pathlib.Path(scratch) / "x.plan")
        reports = [json.loads(subprocess.run(["cleave", *command], check=True, capture_output=True, text=True).stdout)
                   for command in (["estimate", *given], ["compile", *given, "-o", plan])]
        moved, words = moved_by(plan)
    estimated, planned = map(bytes_of, reports)
    wrong = [f"{kind}: {estimated[kind]:.0f} bytes estimated, {planned[kind]:.0f} in the plan" for kind in kinds.split(",")
             if abs(estimated[kind] - planned[kind]) > max(0.02 * planned[kind], 256)]
    missing = [f"{kind}: none in the plan" for kind in kinds.split(",") if planned[kind] == 0]
    parameters = {row["name"] for row in reports[0]["parameters"]}
    wrong += wrong_names(reports[0], kinds.split(","), moved, words, parameters)
    print("\n".join(wrong + missing) or f"{kinds}: equal")
    return 1 if wrong or missing else 0


sys.exit(main())
