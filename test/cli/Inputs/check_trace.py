"""Checks a predicted trace: check_trace.py TRACE REPORT.json|PLAN PROCESSES"""
import collections
import json
import subprocess
import sys

trace, source, processes = sys.argv[1:]
report = json.loads(subprocess.run(["cleave", "report", source, "--format", "json"], check=True, stdout=subprocess.PIPE).stdout)
slices = collections.defaultdict(list)
for event in json.load(open(trace))["traceEvents"]:
    if event["ph"] == "X":
        slices[event["pid"]].append(event)
assert len(slices) == int(processes)
counters = [event for event in json.load(open(trace))["traceEvents"] if event["ph"] == "C"]
assert len(counters) == len(report["memory_over_time"]) > 1
begins = [0] + [point["seconds"] for point in report["memory_over_time"]]  # of the passes
for event, point, begin in zip(counters, report["memory_over_time"], begins):
    assert abs(event["ts"] * 1e-6 - begin) <= 1e-9 * begin + 1e-12
    assert event["args"] == {kind: point[kind] for kind in event["args"]} and len(event["args"]) == 5, event
for rank, events in slices.items():
    events.sort(key=lambda event: event["ts"])
    for event, after in zip(events, events[1:]):
        assert event["ts"] + event["dur"] <= after["ts"] * (1 + 1e-9) + 1e-3
    if len(slices) > 1:  # every microbatch passes every stage of the rank, forward and backward
        stages = sum(stage["rank"] == rank for stage in report["stages"])
        counts = collections.Counter(event["cat"] for event in events)
        backward = counts["backward"] + counts["input gradient"]
        assert counts["forward"] == backward == stages * report["microbatches"], counts
        busy = sum(event["dur"] for event in events) * 1e-6
        told = sum(stage["forward_s"] + stage["backward_s"] for stage in report["stages"] if stage["rank"] == rank)
        assert abs(busy - told) < 1e-6 * told
