"""Reports of one problem with all moves, none, and two: those that were asked for were made, and more never find less."""
import json
import pathlib
import sys

reports = {name: json.loads((pathlib.Path(sys.argv[1]) / f"{name}.json").read_text()) for name in ("all", "none", "some")}
made = {name: [move["name"] for move in report["search"]["moves"]] for name, report in reports.items()}
assert made == {"all": ["cuts", "splits", "bounds", "units", "schedules", "zero"], "none": [], "some": ["bounds", "units"]}, made
steps = {name: report["predicted"]["step_time_s"] for name, report in reports.items()}
assert steps["all"] <= steps["none"] and steps["some"] <= steps["none"], steps
assert all(move["seconds"] >= 0 and move["gained_s"] >= 0 for move in reports["all"]["search"]["moves"]), reports["all"]
assert reports["all"]["search"]["gap"] <= reports["none"]["search"]["gap"] + 1e-9
