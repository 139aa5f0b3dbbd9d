"""Compares metrics files: both have the steps 1, 2, ... once each, at least 200 of them, with equal losses; prints how many.

    same_losses.py ONE OTHER
"""
import json
import sys


def losses(path):
    with open(path) as lines:
        return [(entry["step"], entry["loss"]) for entry in map(json.loads, lines)]


one, other = losses(sys.argv[1]), losses(sys.argv[2])
if len(one) < 200 or [step for step, _ in one] != list(range(1, len(one) + 1)):
    sys.exit(f"{sys.argv[1]} has the steps {[step for step, _ in one]}")
if one != other:
    sys.exit(f"they differ: {[pair for pair in zip(one, other) if pair[0] != pair[1]][:3]}, {len(other)} steps")
print(f"{len(one)} steps with the same losses")
