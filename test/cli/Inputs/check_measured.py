"""Checks what `cleave report --measured TRACE --format json` says: check_measured.py MEASURED.json REPORT.json TRACE"""
import collections
import json
import math
import statistics
import sys

measured, report, trace = (json.load(open(path)) for path in sys.argv[1:])
part_of = {}
for node in report["nodes"]:
    for name in node["names"]:
        for key in (name, name.rsplit(":", 1)[0]):
            part_of.setdefault(key, node["part"])
for row in report["parameters"]:
    part_of.setdefault(row["name"], part_of.get(row["readers"][0]) if row["readers"] else None)
layers, collectives = (collections.defaultdict(collections.Counter) for _ in range(2))
begins, ends, ranks = {}, {}, set()
for event in trace["traceEvents"]:
    arguments = event.get("args", {})
    if event["ph"] != "X" or (arguments.get("action") or event["name"]).startswith("evaluate"):
        continue
    step, seconds = arguments["step"], event["dur"] * 1e-6
    ranks.add(event["pid"])
    if event["pid"] == trace["traceEvents"][0]["pid"]:
        begins[step] = min(begins.get(step, math.inf), event["ts"] * 1e-6)
        ends[step] = max(ends.get(step, 0), event["ts"] * 1e-6 + seconds)
    if "axes" in arguments:
        collectives[arguments["kind"], tuple(sorted(arguments["axes"])), arguments["why"]][step] += seconds
    elif arguments.get("direction") == "send":
        collectives["send", ("pp",), arguments["why"]][step] += seconds
    elif "kind" in arguments and "direction" not in arguments and event["tid"] == 0:
        name = event["name"]
        part = part_of.get(name) or part_of.get(name.split(" and ")[0]) or part_of.get(name.split("+")[0])
        layers[part or "the whole step"][step] += seconds
steps = sorted(set(begins) - {1})  # the run's first warms up
assert (measured["first_step"], measured["last_step"], measured["devices"]) == (steps[0], steps[-1], len(ranks))
median = lambda sums: statistics.median(sums[step] for step in steps) / len(ranks)
near = lambda a, b: abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 1e-12
lengths = [begins.get(step + 1, ends[step]) - begins[step] for step in steps]
sums = {row["name"]: row for row in measured["sums"]}
assert near(sums["step"]["measured_s"], statistics.median(lengths))
assert sums["step"]["predicted_s"] == report["predicted"]["step_time_s"]
assert near(sums["compute"]["predicted_s"], report["predicted"]["compute_s"])
assert {row["name"] for row in measured["layers"]} == {row["part"] for row in report["time"]} | set(layers)
for row in measured["layers"]:
    assert near(row["measured_s"], median(layers[row["name"]])), row
    predicted = sum(part["compute_s"] for part in report["time"] if part["part"] == row["name"])
    assert near(row["predicted_s"], predicted), row
assert near(sum(row["measured_s"] for row in measured["layers"]), sums["compute"]["measured_s"])
# The plan lists all that ran: every collective has both figures.
# Those of repeated blocks share a row, whose reason is that of the first: kinds and axes are compared, and their sums.
kind = lambda row: (row["op"], tuple(sorted(row["axes"])))
assert {kind(row) for row in measured["collectives"]} == {kind(row) for row in report["collectives"]} == {key[:2] for key in collectives}
assert len(measured["collectives"]) == len(report["collectives"]) <= len(collectives)
for one in {kind(row) for row in measured["collectives"]}:
    rows = [row for row in measured["collectives"] if kind(row) == one]
    together = collections.Counter()
    for key, seconds in collectives.items():
        if key[:2] == one:
            together.update(seconds)
    assert near(sum(row["predicted_s"] for row in rows), sum(row["seconds"] for row in report["collectives"] if kind(row) == one))
    if len(rows) == 1:
        assert near(rows[0]["measured_s"], median(together)), one
assert any((*kind(row), row["why"]) in collectives for row in report["collectives"]), "no reason of the report is one of the trace"
for row in measured["sums"] + measured["layers"] + measured["collectives"]:
    assert row["ratio"] is None if row["predicted_s"] == 0 else near(row["ratio"], row["measured_s"] / row["predicted_s"])
for rows in (measured["layers"], measured["collectives"]):
    large = lambda row: max(row["predicted_s"], row["measured_s"]) >= 0.01 * sums["step"]["measured_s"]
    distance = lambda row: abs(math.log(row["ratio"])) if row["ratio"] and row["measured_s"] else math.inf
    order = [(not large(row), -distance(row)) for row in rows]
    assert order == sorted(order), order
known = sum(row["measured_s"] for row in measured["layers"] if row["name"] != "the whole step")
assert known > 0.8 * sums["compute"]["measured_s"], measured["layers"]
print("measured as the trace says")
