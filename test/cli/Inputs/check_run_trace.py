"""Checks a trace of `cleave run`: check_run_trace.py TRACE STEP... METRICS.jsonl"""
import collections
import json
import sys

trace, *steps, metrics = sys.argv[1:]
events = json.load(open(trace))["traceEvents"]
slices = [event for event in events if event["ph"] == "X"]
assert {event["args"]["step"] for event in slices} == {int(step) for step in steps}
ranks = {event["pid"] for event in slices}
# One arrow a message, from a send that has begun to the end of its receive in another process.
ends = collections.defaultdict(dict)
for event in events:
    if event["ph"] in "sf":
        assert event["ph"] not in ends[event["id"]], event
        ends[event["id"]][event["ph"]] = event
sends = [event for event in slices if event["args"].get("direction") == "send"]
assert len(ends) == len(sends) > 0
for arrow in ends.values():
    assert set(arrow) == {"s", "f"}, arrow
    assert arrow["s"]["ts"] <= arrow["f"]["ts"] and arrow["s"]["pid"] != arrow["f"]["pid"], arrow
for event in sends:
    assert any(arrow["s"]["pid"] == event["pid"] and arrow["s"]["ts"] == event["ts"] and
               arrow["f"]["pid"] == event["args"]["peer"] for arrow in ends.values()), event
# Values come and go, and never take more than the device has.
peak = max(json.loads(line)["peak_bytes_per_device"] for line in open(metrics))
for rank in ranks:
    counters = [event for event in events if event["ph"] == "C" and event["pid"] == rank]
    values = [event["args"]["values"] for event in counters]
    assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)
    assert min(values) >= 0 and values[-1] == 0 and max(values) > 0, (min(values), values[-1])
    assert len({event["args"]["persistent"] for event in counters}) == 1
    assert max(values) + counters[0]["args"]["persistent"] <= peak, (max(values), counters[0], peak)
print(f"{len(steps)} steps of {len(ranks)} ranks, {len(ends)} arrows")
