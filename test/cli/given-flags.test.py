#!/usr/bin/env python3
"""Do the flags that a report's page prints give its split again?   given-flags.test.py MODEL RECIPE CASES

A case is "estimate|compile CLUSTER FLAG...". Together the cases have every split flag of `cleave estimate --help`.
"""
import html
import json
import pathlib
import re
import shlex
import subprocess
import sys

model, recipe, cases = sys.argv[1:]
SPLIT = ("mesh", "zero", "lower_zero", "schedule", "microbatches", "recompute", "offload", "like", "predicted",
         "collectives", "commands", "stages", "parameters", "nodes")


def cleave(*args):
    done = subprocess.run(["cleave", *args], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def split(name, command, cluster, flags):
    """What the report, kept in the file, says of the split; the order of the mesh's axes counts."""
    more = ["--no-proof", "-o", "x.plan"] if command == "compile" else []
    text = cleave(command, model, "--recipe", recipe, "--cluster", cluster, "--json", *more, *flags)
    pathlib.Path(name).write_text(text)
    report = json.loads(text)
    return {key: json.dumps(report.get(key)) for key in SPLIT}


def names(flags):
    return {flag for flag in flags if flag.startswith("--")}


tested = set()
for line in pathlib.Path(cases).read_text().splitlines():
    command, cluster, *flags = shlex.split(line)
    tested |= names(flags)
    given = split("given.json", command, cluster, flags)
    page = cleave("report", "given.json", "--format", "html")
    printed = shlex.split(html.unescape(re.search(r"give this split again: <code[^>]*>(.*?)</code>", page)[1]))
    assert names(flags) <= names(printed), (flags, printed)
    again = split("again.json", command, cluster, printed)
    other = [key for key in SPLIT if given[key] != again[key]]
    assert not other, (flags, printed, other, given["predicted"], again["predicted"])

options = cleave("estimate", "--help").split("[Option Group: split]")[1]
missing = set(re.findall(r"^ +(--[a-z-]+)", options, re.M)) - tested
assert "--pin" in options and not missing, missing
