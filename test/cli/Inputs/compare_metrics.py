"""Compares the losses by step of lines of JSON with those of CSV, or of read_events.py's lines, where the last counts."""
import csv
import json
import sys

lines = {entry["step"]: entry["loss"] for entry in map(json.loads, open(sys.argv[1]))}
if sys.argv[2].endswith(".csv"):
    others = {int(row["step"]): float(row["loss"]) for row in csv.DictReader(open(sys.argv[2]))}
else:
    words = [line.split() for line in open(sys.argv[2])]
    others = {int(step): float(value) for step, _, value in (line for line in words if line[0] != "start")}
assert list(lines) == sorted(others), (lines, others)
for step, loss in lines.items():
    assert abs(loss - others[step]) < 1e-5, (step, loss, others[step])
