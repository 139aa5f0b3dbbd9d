"""Sees that a folder keeps the snapshots of the given steps and that of the lowest evaluation's, to which `best` leads.

    best_snapshot.py METRICS FOLDER STEP...
"""
import json
import pathlib
import sys

folder, steps = pathlib.Path(sys.argv[2]), {int(step) for step in sys.argv[3:]}
with open(sys.argv[1]) as lines:
    evaluated = [(entry["eval_loss"], entry["step"]) for entry in map(json.loads, lines) if "eval_loss" in entry]
loss, best = min(evaluated)
kept = {int(path.name[5:]) for path in folder.glob("step-*")}
linked = json.loads((folder / "best" / "manifest.json").read_text())
if kept != steps | {best} or linked["step"] != best or linked["eval_loss"] != loss:
    sys.exit(f"kept {sorted(kept)}, best is {linked['step']} ({linked['eval_loss']}); it should be {best} ({loss})")
