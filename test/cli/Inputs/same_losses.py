"""Compares metrics files: the losses of all steps of WHOLE are those of the other files together, each step once.

    same_losses.py WHOLE STEPS PART...
"""
import json
import sys


def losses(path):
    with open(path) as lines:
        return [(entry["step"], entry["loss"]) for entry in map(json.loads, lines)]


whole, steps = losses(sys.argv[1]), int(sys.argv[2])
parts = [pair for part in sys.argv[3:] for pair in losses(part)]
if len(whole) != steps or [step for step, _ in whole] != list(range(1, steps + 1)):
    sys.exit(f"{sys.argv[1]} has the steps {[step for step, _ in whole]}")
if parts != whole:
    sys.exit(f"they differ: {[pair for pair in zip(whole, parts) if pair[0] != pair[1]][:3]}, {len(parts)} steps")
