"""Checks what `cleave bench --json` wrote: check_bench.py BENCH.json REPORT.json STEPS"""
import json
import sys

bench, report = (json.load(open(path)) for path in sys.argv[1:3])
step = bench["step_s"]
assert bench["steps"] == int(sys.argv[3])
assert 0 < step["min"] <= step["p50"] <= step["p90"] <= step["p99"] <= step["max"]
assert bench["predicted"]["step_s"] == report["predicted"]["step_time_s"]
# oneDNN's kernels want scratch memory on some CPUs, which the compiler does not know.
predicted = report["predicted"]["memory_bytes_per_device"]
assert predicted <= bench["memory_bytes_per_device"] <= 1.25 * predicted
assert {phase["name"] for phase in bench["phases"]} == {"forward", "backward", "update"}
sums = {table: [sum(row[key] for row in bench[table]) for key in ("seconds", "commands")]
        for table in ("phases", "kinds", "nodes")}
for table in sums.values():
    assert all(abs(a - b) < 1e-9 * b for a, b in zip(table, sums["phases"])), sums
for table in ("phases", "kinds", "nodes"):
    seconds = [row["seconds"] for row in bench[table]]
    assert seconds == sorted(seconds, reverse=True)
assert "all_reduce" in {kind["name"] for kind in bench["kinds"]}
