#!/usr/bin/env python3
"""Does a split come back from the annotated model?   same_split.py MODEL RECIPE FOLDER FLAG...

Compiles for cpu:4 with the flags, writes the annotated model, compiles that without flags, and compares the reports.
Operations that cost nothing may be split otherwise: what they do between their neighbours is the same.
"""
import json
import pathlib
import subprocess
import sys

model, recipe, folder, *flags = sys.argv[1:]
folder = pathlib.Path(folder)


def cleave(*arguments):
    done = subprocess.run(["cleave", *map(str, arguments)], text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"cleave {' '.join(map(str, arguments))}: {done.stderr}")


def split(name, source, *more):
    cleave("compile", source, "--recipe", recipe, "--cluster", "cpu:4", "-o", folder / f"{name}.plan", *more)
    cleave("report", folder / f"{name}.plan", "--format", "json", "-o", folder / f"{name}.json")
    report = json.loads((folder / f"{name}.json").read_text())
    stages = {node["names"][0]: node.get("stages") for node in report["nodes"]}
    return {key: report[key] for key in ("mesh", "zero", "schedule", "microbatches", "recompute", "like", "predicted")} | {
        "stages": stages, "layouts": {p["name"]: p["layout"] for p in report["parameters"]}}


first = split("first", model, *flags)
cleave("export", "--annotate", folder / "first.plan", "-o", folder / "annotated.onnx")
again = split("again", folder / "annotated.onnx")
for key in first:
    if first[key] != again[key]:
        sys.exit(f"{' '.join(flags)}: {key} was {first[key]}, and came back as {again[key]}")
