"""equal_losses.py STEPS NAME... [--within X]: have NAME.jsonl the steps 1 to STEPS, with the same losses? To the bit, or so near."""
import json
import sys

names = sys.argv[2:]
within = 0.0
if "--within" in names:
    within = float(names[-1])
    names = names[:-2]
found = {}
for name in names:
    found[name] = {line["step"]: line["loss"] for line in map(json.loads, open(f"{name}.jsonl")) if "loss" in line}
    assert sorted(found[name]) == list(range(1, int(sys.argv[1]) + 1)), (name, sorted(found[name]))
first = found[names[0]]
for name in names[1:]:
    assert all(abs(found[name][step] - loss) <= within * abs(loss) for step, loss in first.items()), (name, first, found[name])
assert len(set(first.values())) > 1, first
print(f"{len(names)} runs with the same losses")
