#!/usr/bin/env python3
"""Does a --diff of two reports that mix ZeRO stages say which parameters changed theirs, and what that is worth?

    changed_zero.py LEFT.json RIGHT.json DIFF.txt

Stages are read off how parameters, gradients and states lie. Both reports must mix stages.
"""
import collections
import json
import re
import sys


def stages(report):
    assert "lower_zero" in report, "does not mix stages"
    return {row["name"]: 3 if "dp" in row["layout"] else 2 if "dp" in row["gradient"] else 1 if "dp" in row["state"] else 0
            for row in report["parameters"]}


def main():
    left, right = (json.load(open(path)) for path in sys.argv[1:3])
    text = open(sys.argv[3]).read()
    before, after = stages(left), stages(right)
    kinds = collections.defaultdict(list)
    for name in before:
        if before[name] != after[name]:
            kinds[re.sub(r"\d+", "*", name), before[name], after[name]].append(name)
    assert len(kinds) > 1, kinds
    told = {(what, int(a), int(b)) for what, a, b in re.findall(r"^  zero of (.*?) +(\d) -> (\d)$", text, re.M)}
    shown = {kind: names[0] if len(names) == 1 else f"{kind[0]} ({len(names)} x)" for kind, names in kinds.items()}
    assert told == {(shown[kind], *kind[1:]) for kind in kinds}, (told, shown)
    percent = lambda what: float(re.search(rf"^  {re.escape(what)} .*?\(([+-][\d.]+) %\)", text, re.M).group(1))
    worth = 100 * (right["predicted"]["step_time_s"] / left["predicted"]["step_time_s"] - 1)
    assert abs(percent("zero of all these parameters") - worth) < 0.1, text
    alone = [percent(f"zero {kind[2]} of {shown[kind]}") for kind in kinds]
    # Stages of different parameters cost what they cost, whatever the others have: nothing hides on this CPU.
    assert abs(sum(alone) - worth) < 0.1 * len(alone), (alone, worth)
    return 0


sys.exit(main())
