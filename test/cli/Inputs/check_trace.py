"""Checks a predicted trace, and the timeline of a page: check_trace.py TRACE REPORT.json|PLAN PAGE.html"""
import collections
import json
import pathlib
import re
import subprocess
import sys

trace, source, page = sys.argv[1:]
report = json.loads(subprocess.run(["cleave", "report", source, "--format", "json"], check=True, stdout=subprocess.PIPE).stdout)
ranks = report["mesh"].get("pp", 1)
stages, microbatches = report["stages"], report["microbatches"]
LANES = ["passes", "collectives", "transfers"]
events = json.load(open(trace))["traceEvents"]
names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
assert sorted(names.values()) == sorted(LANES * ranks)
slices = collections.defaultdict(list)
for event in events:
    if event["ph"] == "X":
        slices[event["pid"], names[event["pid"], event["tid"]]].append(event)
counters = [event for event in events if event["ph"] == "C"]
assert len(counters) == len(report["memory_over_time"]) > 1
begins = [0] + [point["seconds"] for point in report["memory_over_time"]]  # of the passes
for event, point, begin in zip(counters, report["memory_over_time"], begins):
    assert abs(event["ts"] * 1e-6 - begin) <= 1e-9 * begin + 1e-12
    assert event["args"] == {kind: point[kind] for kind in event["args"]} and len(event["args"]) == 5, event


def seconds(events):
    return sum(event["dur"] for event in events) * 1e-6


def alike(one, other, tolerance=1e-6):
    assert abs(one - other) <= tolerance * max(one, other), (one, other)


for rank in range(ranks):
    own = [stage for stage in stages if stage["rank"] == rank]
    lane = {name: sorted(slices[rank, name], key=lambda event: event["ts"]) for name in LANES}
    for event, after in zip(lane["passes"], lane["passes"][1:]):
        assert event["ts"] + event["dur"] <= after["ts"] * (1 + 1e-9) + 1e-3
    # Every microbatch passes every stage of the rank, forward and backward.
    counts = collections.Counter(event["cat"] for event in lane["passes"])
    assert counts["forward"] == counts["backward"] + counts["input gradient"] == len(own) * microbatches, counts
    update = [event for event in lane["passes"] if event["cat"] == "update"]
    passes = [event for event in lane["passes"] if event["cat"] != "update"]
    alike(seconds(passes), sum(stage["forward_s"] + stage["backward_s"] for stage in own))
    of_passes = [event for event in lane["collectives"] if event["cat"] == "collectives"]
    alike(seconds(of_passes), sum(stage["communication_s"] for stage in own))
    alike(seconds(event for event in of_passes if "F" in event["name"]), sum(stage["forward_communication_s"] for stage in own))
    assert all(event["args"]["what"] for event in of_passes)
    assert bool(update) == any(stage["update_s"] > 0 for stage in own)
    # Each rank sends others activations forward, and gradients back.
    for name, way, step in (("activations", "forward", 1), ("gradients", "backward", -1)):
        sent = [event for event in lane["transfers"] if event["name"] == name]
        senders = [number for number, stage in enumerate(stages) if stage["rank"] == rank
                   and 0 <= number + step < len(stages) and stages[number + step]["rank"] != rank]
        assert collections.Counter(event["args"]["stage"] for event in sent) == {number: microbatches for number in senders}
        alike(seconds(sent), microbatches * sum(stages[number]["pass"][f"send_{way}_s"] for number in senders))
        assert all(event["args"]["bytes"] == stages[event["args"]["stage"]]["pass"][f"sent_{way}_bytes"] for event in sent)

# The page's words for the passes, as compiler/report/page/timeline.cpp says what they mean.
data = json.loads(re.search(r'<figure class="timeline">.*?<script type="application/json">(.*?)</script>', pathlib.Path(page).read_text(), re.S)[1])
whole = lambda digits: int(digits, 36)
for rank, shown in enumerate(data["ranks"]):
    passes = [event for event in slices[rank, "passes"] if event["cat"] != "update"]
    words, now, following = shown["passes"].split(" "), 0, collections.Counter()
    assert len(words) == len(passes) > 0
    for word, event in zip(words, passes):
        key, microbatch, wait, _ = re.fullmatch(r"(\w+)(?:\.(\w+))?(?:\+(\w+))?(?:~(\w+))?", word).groups()
        stage, kind = shown["stages"][whole(key) // 4], whole(key) % 4
        microbatch = following[key] if microbatch is None else whole(microbatch)
        following[key] = microbatch + 1
        assert event["cat"] == ["forward", "backward", "input gradient", "weight gradient"][kind]
        assert event["args"] == {"stage": stage, "microbatch": microbatch}
        now += whole(wait or "0")
        assert abs(now - event["ts"] * 1e-6 / data["unit"]) <= 20, (word, now, event)  # millionths of the step
        now += data["stages"][stage]["passes"][kind]
        assert abs(now - (event["ts"] + event["dur"]) * 1e-6 / data["unit"]) <= 20, (word, now, event)
