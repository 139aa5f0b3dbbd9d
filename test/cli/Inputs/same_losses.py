"""Have metrics files the steps 1, 2, ... once each, at least 200 of them, with the same losses? Prints how many.

    same_losses.py ONE OTHER... [--steps N] [--within X]      exactly N steps; losses that differ by at most X of theirs
"""
import argparse
import json
import sys

parser = argparse.ArgumentParser()
parser.add_argument("files", nargs="+")
parser.add_argument("--steps", type=int)
parser.add_argument("--within", type=float, default=0.0)
args = parser.parse_args()


def losses(path):
    with open(path) as lines:
        return [(entry["step"], entry["loss"]) for entry in map(json.loads, lines) if "loss" in entry]


one = losses(args.files[0])
if len(one) < 200 and args.steps is None or [step for step, _ in one] != list(range(1, (args.steps or len(one)) + 1)):
    sys.exit(f"{args.files[0]} has the steps {[step for step, _ in one]}")
if len({loss for _, loss in one}) == 1:
    sys.exit(f"{args.files[0]} has one loss in all steps")
for path in args.files[1:]:
    other = losses(path)
    if [step for step, _ in other] != [step for step, _ in one]:
        sys.exit(f"{path} has {len(other)} steps")
    if differ := [(a, b) for a, b in zip(one, other) if not abs(a[1] - b[1]) <= args.within * abs(a[1])]:
        sys.exit(f"{path} differs: {differ[:3]}")
print(f"{len(one)} steps with the same losses")
