#!/usr/bin/env python3
"""Do a table's presets cost what `--like` and `--diff` say, and do a page's flags ask for the split that it shows?

    one-price.test.py MODEL RECIPE CLUSTER
"""
import html
import json
import pathlib
import re
import shlex
import subprocess
import sys

model, recipe, cluster = sys.argv[1:]
SETTING = ("mesh", "zero", "microbatches", "schedule", "recompute", "offload")


def cleave(*args):
    return subprocess.run(["cleave", *args], capture_output=True, text=True)


def estimate(file, *flags):
    """The estimate, which is also written to the file; none where no plan fits."""
    done = cleave("estimate", model, "--recipe", recipe, "--cluster", cluster, "--json", *flags)
    pathlib.Path(file).write_text(done.stdout)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


def step(report):
    return report["predicted"]["step_time_s"]


def close(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


searched = estimate("searched.json")
page = cleave("report", "searched.json", "--format", "html").stdout
flags = shlex.split(html.unescape(re.search(r"Flags that give this split again: <code[^>]*>(.*?)</code>", page)[1]))
again = estimate("again.json", *flags)
assert all(again[key] == searched[key] for key in SETTING), (flags, [again[key] for key in SETTING])
assert close(step(again), step(searched)), (flags, step(again), step(searched))

compared = 0
for row in searched["alternatives"]:
    if row["name"].startswith("searched") or not row["fits"]:
        continue
    like = estimate("like.json", "--like", row["name"])
    assert like and close(step(like), row["step_time_s"]), (row["name"], row["step_time_s"], like and step(like))
    diff = cleave("report", "searched.json", "--diff", "like.json").stdout
    told = re.search(r"step time .* -> .* \(([+-][0-9.]+) %\)", diff)
    change = 100 * (row["step_time_s"] / step(searched) - 1)
    assert abs((float(told[1]) if told else 0) - change) < 0.06, (row["name"], change, diff)
    compared += 1
assert compared > 8, compared
