"""Sees that a folder keeps the newest snapshots and that of the lowest evaluation's, to which `best` leads.

    best_snapshot.py METRICS FOLDER EVERY KEPT    written every so many steps and after each best evaluation
"""
import json
import pathlib
import sys

folder, every, count = pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with open(sys.argv[1]) as lines:
    entries = [json.loads(line) for line in lines]
best, written = None, []
for entry in entries:
    is_best = "eval_loss" in entry and (best is None or entry["eval_loss"] < best["eval_loss"])
    if is_best:
        best = entry
    if is_best or entry["step"] % every == 0:
        written.append(entry["step"])
wanted = {*written[-count:], best["step"]}
kept = {int(path.name[5:]) for path in folder.glob("step-*")}
linked = json.loads((folder / "best" / "manifest.json").read_text())
if kept != wanted or linked["step"] != best["step"] or linked["score"] != best["eval_loss"] or len(kept) < count:
    sys.exit(f"kept {sorted(kept)}, best is {linked['step']}; it should be {sorted(wanted)} and {best['step']}")
