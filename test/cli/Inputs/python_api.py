"""Uses the module `cleave` as a person would: python_api.py MODEL FOLDER (of mlp: x [batch, 20], 10 classes)"""
import json
import pathlib
import shutil
import subprocess
import sys

import cleave
import numpy as np

model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
recipe = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2},
          "clip_norm": 1.0, "data": {"kind": "arrays", "path": str(folder / "data.npz"), "shuffle": False}}

# Data of one's own, and the same data by `cleave run`: the same losses.
random = np.random.default_rng(0)
x, labels = random.standard_normal((40, 20), dtype=np.float32), random.integers(0, 10, 40)
np.savez(folder / "data.npz", input=x, labels=labels)
plan = cleave.compile(model, recipe, cluster="cpu:2", mesh="dp=2,tp=1", zero=1)
with cleave.Trainer(plan, snapshots=folder / "snaps") as trainer:
    assert trainer.inputs == {"input": (np.float32, (8, 20)), "labels": (np.int64, (8,))}, trainer.inputs
    steps = [trainer.step({"input": x[i:i + 8], "labels": labels[i:i + 8]}) for i in range(0, 24, 8)]
    assert np.shares_memory(trainer._bound["input"], x) and np.shares_memory(trainer._bound["labels"], labels)  # no copies
    trainer.save()
    own = trainer.parameters()
    assert own["0.weight"].shape == (64, 20) and own["0.weight"].dtype == np.float32
subprocess.run([cleave.tool_path(), "run", plan.path, "--steps", "5", "--metrics", folder / "m.jsonl", "--quiet"], check=True)
told = [json.loads(line) for line in open(folder / "m.jsonl")]
assert [step.step for step in steps] == [1, 2, 3]
assert [step.loss for step in steps] == [line["loss"] for line in told[:3]], (steps, told)
assert [step.grad_norm for step in steps] == [line["grad_norm"] for line in told[:3]]

# It goes on from the snapshot, with int32 labels, a copy with other strides, and something that has DLPack only.
class Tensor:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keys):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


with cleave.Trainer(plan, snapshots=folder / "snaps", resume=True) as trainer:
    assert trainer.steps_done == 3
    strided = np.asfortranarray(x[24:32])
    assert trainer.step({"input": strided, "labels": labels[24:32].astype(np.int32)}).loss == told[3]["loss"]
    assert not np.shares_memory(trainer._bound["input"], strided)
    dense = Tensor(x[32:40].copy())
    assert trainer.step({"input": dense, "labels": labels[32:40]}).loss == told[4]["loss"]
    assert np.shares_memory(trainer._bound["input"], dense.array)

# Errors say what is wrong.
def refused(call, status, *words):
    try:
        call()
    except cleave.CleaveError as error:
        assert error.status == status and all(word in str(error) for word in words), (error.status, str(error))
    else:
        raise AssertionError(f"not refused: {words}")


shutil.copytree(folder / "snaps", folder / "others")
refused(lambda: cleave.Trainer(plan, snapshots=folder / "others"), 1, "others")
refused(lambda: cleave.Trainer(plan, snapshots=folder / "others", resume=True, overwrite=True), 2, "exclude each other")
with cleave.Trainer(plan, snapshots=folder / "others", overwrite=True) as trainer:
    assert trainer.steps_done == 0
with cleave.Trainer(plan) as trainer:
    refused(lambda: trainer.step({"y": x}), 2, "no input 'y'", "input, labels")
    refused(lambda: trainer.step({"input": x[:8, :4]}), 2, "(8, 20)", "(8, 4)")
    refused(lambda: trainer.step({"input": x[:4]}), 2, "'input' has 4", "'labels' is left out")
    refused(lambda: trainer.step({"labels": np.zeros(8)}), 2, "int64", "float64")
    refused(trainer.save, 1, "no snapshot folder")
# A data file that becomes shorter ends the training, and not Python.
np.savez(folder / "short.npz", input=np.zeros((4000, 20), np.float32), labels=np.zeros(4000, np.int64))
with cleave.Trainer(plan, data=folder / "short.npz") as trainer:
    trainer.step()
    (folder / "short.npz").write_bytes(b"")
    refused(trainer.step, 4, "short.npz: has become shorter")
refused(lambda: cleave.Trainer(model), 1, "not a plan but an ONNX model")
refused(lambda: cleave.compile(model, {"dims": {"batch": 8}, "los": 1}, "cpu:1"), 1, "recipe.yaml", "unknown key 'los'")
refused(lambda: cleave.compile(model, recipe, "cpu"), 1, "how many devices?")

# Reports.
report = plan.report()
assert report.data["mesh"] == {"dp": 2, "tp": 1} and "step time" in str(report)
assert "0.weight" in report.explain("0.weight")
for name, begin in (("r.html", "<!doctype html>"), ("r.json", "{"), ("r.txt", str(report)[:20])):
    report.save(folder / name)
    assert (folder / name).read_text().startswith(begin)
assert "<iframe" in report._repr_html_()
assert "h100-80g:1" == cleave.estimate(model, recipe, "h100-80g:1").data["cluster"]
comparison = cleave.estimate(model, recipe, ["h100-80g:1", "h100-80g:2"])
assert [row[:2] for row in comparison.rows] == [("h100-80g:1", 1), ("h100-80g:2", 2)] and "h100-80g:2" in str(comparison)
sys.modules.update({"pandas": None, "safetensors": None})  # they are not installed
refused(comparison.to_pandas, 2, "needs pandas")
module = type("Module", (), {"parameters": lambda self: []})()
refused(lambda: cleave.load_into(module, folder / "snaps"), 2, "needs torch and safetensors")
assert "the split computes what the unsplit model computes" in plan.verify()
print("python: as expected")
