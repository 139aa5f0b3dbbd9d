#!/usr/bin/env python3
"""Is the measured timeline of a pipeline the simulated one?

    compare_timeline.py TRACE SCHEDULE.json     a trace of `cleave run`, and what `cleave schedule --format json` says

Every rank must run its actions in the simulated order in every step, one after the other, and no action may end before
that has begun whose results it needs: the same microbatch's forward on the stage before, its backward on the stage after.
"""
import collections
import json
import re
import sys


def main():
    trace, schedule = (json.load(open(path)) for path in sys.argv[1:3])
    halved = {a["stage"] for row in schedule["rows"] for a in row if a["kind"] == "W"}
    measured = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        known = re.fullmatch(r"([FBIW]) (\d+) stage (\d+)", event["name"]) if event.get("cat") == "action" else None
        if known:
            kind, microbatch, stage = known[1], int(known[2]), int(known[3])
            measured[event["pid"], event["args"]["step"]].append((event["ts"], event["dur"], kind, stage, microbatch))
    steps = sorted({step for _, step in measured})
    assert steps, "the trace has no actions of a pipeline"
    for step in steps:
        ends = {}
        for rank, row in enumerate(schedule["rows"]):
            expected = []
            for a in row:
                kinds = "IW" if a["kind"] == "B" and a["stage"] in halved else a["kind"]
                expected += [(kind, a["stage"], a["microbatch"]) for kind in kinds]
            seen = sorted(measured[rank, step])
            order = [(kind, stage, microbatch) for _, _, kind, stage, microbatch in seen]
            assert order == expected, f"step {step}, rank {rank}: {order} instead of {expected}"
            for (begin, duration, *_), (after, *_) in zip(seen, seen[1:]):
                assert begin + duration <= after + 1e-3, f"step {step}, rank {rank}: actions at {begin} and {after} overlap"
            for begin, duration, kind, stage, microbatch in seen:
                ends[kind, stage, microbatch] = (begin, begin + duration)
        for (kind, stage, microbatch), (_, end) in ends.items():
            before = ("F", stage - 1, microbatch) if kind == "F" else (kind, stage + 1, microbatch)
            # Within an action the first commands may not need what is sent, and the last not make it.
            if kind != "W" and before in ends:
                assert ends[before][0] < end, f"step {step}: {kind}{microbatch} of stage {stage} ends before {before} begins"
    print(f"{len(steps)} steps of {len(schedule['rows'])} ranks in the simulated order")


main()
