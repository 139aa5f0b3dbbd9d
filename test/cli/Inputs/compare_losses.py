"""compare_losses.py EXPECTED.json METRICS.jsonl: are the losses of steps 1, 2, ... those that PyTorch recorded in doubles?"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
import golden

expected = json.load(open(sys.argv[1]))["loss"]
found = {line["step"]: line["loss"] for line in map(json.loads, open(sys.argv[2])) if "loss" in line}
assert sorted(found) == list(range(1, len(expected) + 1)), f"the metrics have the steps {sorted(found)}"
for step, loss in enumerate(expected, 1):
    golden.check(f"loss of step {step}", found[step], loss, golden.LOSS_TOLERANCE)
print(f"{len(expected)} losses as in PyTorch")
