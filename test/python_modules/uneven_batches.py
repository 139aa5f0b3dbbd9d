"""A batch that does not divide over the devices or the microbatches, beside PyTorch's own loop: its step has places that stay empty."""
import copy
import json
import pathlib
import subprocess
import tempfile

import cleave
import numpy as np
import torch
from cleave._tool import tool_path
from refused import refused
from torch import nn

SAMPLES, BATCH, STEPS = 75, 30, 6  # batches of 30, 30 and 15, twice
RECIPE = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy", "label_smoothing": 0.1}, "clip_norm": 1.0,
          "optimizer": {"kind": "adamw", "lr": 1e-2}}
# devices, split, places of a step
SPLITS = [("cpu:7", {}, 35), ("cpu:4", {"mesh": "dp=4", "zero": 3}, 32), ("cpu:4", {"mesh": "dp=2,tp=2", "microbatches": 4}, 32),
          ("cpu:2", {"mesh": "pp=2", "microbatches": 4}, 32), ("cpu:1", {"microbatches": 7}, 35)]


class Scaled(nn.Module):
    """The number of samples is one of its numbers: more places would be another model."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, input):
        return self.layer(input) * input.shape[0]


class Turned(nn.Module):
    """Samples are the second dimension of the output; an input that all of them share, and a number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 15)

    def forward(self, input, scale, shift):
        y = self.layer(input * scale) + shift
        return y.view(-1, 3, 5).transpose(0, 1).log_softmax(-1)


def batchmean(folder):
    """kl_div divides by the first dimension, whatever it counts, in empty places and microbatches alike."""
    net, x, scale, shift = Turned(), torch.randn(30, 12), torch.rand(12), torch.tensor(0.5)
    labels = torch.rand(3, 30, 5).softmax(-1)
    wanted = by_torch(net, [((x, scale, shift), labels)] * 3, lambda y, t: nn.functional.kl_div(y, t, reduction="batchmean"))
    recipe = {**RECIPE, "loss": {"kind": "kl_div", "reduction": "batchmean"}}
    for cluster, split in (("cpu:1", {}), ("cpu:1", {"microbatches": 2}), ("cpu:7", {"mesh": "dp=7"}), ("cpu:2", {"microbatches": 4})):
        plan = cleave.compile(net, recipe, cluster, f"{folder}/turned.plan", example=(x[:2], scale, shift), **split)
        with cleave.Trainer(plan) as trainer:
            close([trainer.step({"input": x, "scale": scale, "shift": shift, "labels": labels}).loss for _ in range(3)], wanted)


def cross_entropy(x, labels):
    return nn.functional.cross_entropy(x, labels, label_smoothing=0.1)


def by_torch(module, batches, criterion=cross_entropy):
    module, losses = copy.deepcopy(module), []
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for x, labels in batches:
        optimizer.zero_grad()
        loss = criterion(module(*x) if isinstance(x, tuple) else module(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def close(one, other):
    assert len(one) == len(other) and np.allclose(one, other, rtol=2e-5), (one, other)


def note_of(plan):
    return next((note for note in plan.report().data["notes"] if "stay empty" in note), "")


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    x, labels = torch.randn(SAMPLES, 12), torch.randint(4, (SAMPLES,))
    parts = [(0, 30), (30, 60), (60, 75)] * (STEPS // 3)
    batches = [(x[a:b], labels[a:b]) for a, b in parts]
    wanted = by_torch(net, batches)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", input=x.numpy(), labels=labels.numpy())
        cleave.export(net, (x[:2],), f"{folder}/model.onnx")
        data = {"kind": "arrays", "path": f"{folder}/data.npz", "shuffle": False, "last_batch": "smaller"}
        plans = []
        for cluster, split, places in SPLITS:
            plan = cleave.compile(f"{folder}/model.onnx", {**RECIPE, "data": data}, cluster, f"{folder}/{len(plans)}.plan", **split)
            assert f"30 samples has {places} places" in note_of(plan), (cluster, split, note_of(plan))
            assert plan.report().data["batch"] == BATCH
            plans.append(plan)
            with cleave.Trainer(plan) as trainer:
                assert {shape[0] for _, shape in trainer.inputs.values()} == {BATCH}, trainer.inputs
                close([trainer.step({"input": a, "labels": b}).loss for a, b in batches], wanted)
                for count in (BATCH + 1, places, places + 1):  # places are no samples
                    refused(lambda: trainer.step({"input": x[:count], "labels": labels[:count]}), "'input' has shape (30, 12) in the plan",
                            f"({count}, 12) here")
        for i, plan in enumerate(plans):  # by the command, resumed on another split in the middle of an epoch
            metrics, snapshots = pathlib.Path(folder, f"{i}.jsonl"), f"{folder}/s{i}"
            for of, steps in ((plan, 2), (plans[i - 1], STEPS)):
                resume = ["--resume"] if steps > 2 else []
                done = subprocess.run([tool_path(), "run", of.path, "--steps", str(steps), "--snapshot", snapshots, *resume, "--metrics",
                                       metrics, "--quiet"], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
            lines = [json.loads(line) for line in metrics.read_text().splitlines()]
            close([line["loss"] for line in lines], wanted)
            assert [round(line["samples_per_s"] * line["step_time_s"]) for line in lines] == [30, 30, 15] * (STEPS // 3)
        verified = subprocess.run([tool_path(), "verify", plans[0].path], capture_output=True, text=True)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        # The planner's problem is that of the split that is told.
        for loss, places in (("softmax_cross_entropy", 35), ("mse", 35), ("hinge_embedding", BATCH)):
            pathlib.Path(folder, "r.yaml").write_text(f"dims: {{batch: {BATCH}}}\nloss: {{kind: {loss}}}\noptimizer: {{kind: sgd, lr: 0.1}}\n")
            subprocess.run([tool_path(), "estimate", f"{folder}/model.onnx", "--recipe", f"{folder}/r.yaml", "--cluster", "cpu:7",
                            "--problem", f"{folder}/problem.txt"], check=True, capture_output=True)
            assert f"\nbatch {places} samples {places} " in pathlib.Path(folder, "problem.txt").read_text()
        # Losses over elements get a label of their own for places that stay empty; the last batch of an epoch is smaller, too.
        elements, functional = torch.rand(SAMPLES, 4), nn.functional
        for kind, criterion in (("mse", functional.mse_loss), ("l1", functional.l1_loss), ("huber", functional.huber_loss),
                                ("bce_with_logits", functional.binary_cross_entropy_with_logits)):
            np.savez(f"{folder}/elements.npz", input=x.numpy(), labels=elements.numpy())
            recipe = {**RECIPE, "loss": {"kind": kind}, "data": {**data, "path": f"{folder}/elements.npz"}}
            of_elements = [(x[a:b], elements[a:b]) for a, b in parts]
            wanted = by_torch(net, of_elements, criterion)
            for cluster, split, places in SPLITS:
                plan = cleave.compile(f"{folder}/model.onnx", recipe, cluster, f"{folder}/elements.plan", **split)
                assert f"30 samples has {places} places" in note_of(plan), (kind, cluster, split, note_of(plan))
                metrics = pathlib.Path(folder, "elements.jsonl")
                done = subprocess.run([tool_path(), "run", plan.path, "--steps", str(STEPS), "--metrics", metrics, "--quiet"], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                close([json.loads(line)["loss"] for line in metrics.read_text().splitlines()], wanted)
                metrics.unlink()
            assert subprocess.run([tool_path(), "verify", "--proof", plan.path], capture_output=True).returncode == 0, kind
        batchmean(folder)
        # A loss that has no such label cannot leave places empty.
        refused(lambda: cleave.compile(f"{folder}/model.onnx", {**RECIPE, "loss": {"kind": "hinge_embedding"}}, "cpu:7", mesh="dp=7"),
                "the batch of 30 does not divide over dp=7", "no place of a larger batch can stay empty: loss hinge_embedding has no label that it ignores")
        refused(lambda: cleave.compile(f"{folder}/model.onnx", {**RECIPE, "dims": {"batch": 3}}, "cpu:7", mesh="dp=7"),
                "no place of a larger batch can stay empty: 3 samples are not more than the 4 empty places")
        refused(lambda: cleave.compile(f"{folder}/model.onnx", {**RECIPE, "ramp": [{"until": 3, "batch": 14}]}, "cpu:7", mesh="dp=7"),
                "no place of a larger batch can stay empty: the recipe has a ramp")
        refused(lambda: cleave.compile(Scaled(), RECIPE, "cpu:7", mesh="dp=7", example=(x[:2],)), "the batch of 30 does not divide over dp=7")
    print("uneven batches: as expected")


if __name__ == "__main__":
    main()
