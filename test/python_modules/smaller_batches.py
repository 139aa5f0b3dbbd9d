"""A last batch of fewer samples, as DataLoader(drop_last=False) gives it, beside PyTorch's own loop: `data.last_batch: smaller`,
Trainer.step and fit; and what refuses it."""
import copy
import json
import pathlib
import subprocess
import tempfile
import warnings

import cleave
import numpy as np
import torch
from cleave._tool import tool_path
from refused import refused
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH, EPOCHS = 21, 8, 2  # batches of 8, 8 and 5; of four microbatches one has one sample, and one none
WEIGHT = [1.0, 0.5, 2.0, 1.5]
LOSS = {"kind": "softmax_cross_entropy", "weight": WEIGHT}
RECIPE = {"dims": {"batch": BATCH}, "loss": LOSS, "clip_norm": 1.0, "optimizer": {"kind": "adamw", "lr": 1e-2}}
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}), ("cpu:2", {"mesh": "pp=2", "microbatches": 4})]


def by_torch(module, loader, epochs, weight=WEIGHT):
    module, losses = copy.deepcopy(module), []
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for _ in range(epochs):
        for x, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x), labels, weight=weight and torch.tensor(weight))
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


def close(one, other, rtol=1e-5):
    assert len(one) == len(other) and np.allclose(one, other, rtol=rtol), (one, other)


def run(*words):
    done = subprocess.run([tool_path(), "run", *map(str, words), "--quiet"], capture_output=True, text=True)
    assert done.returncode == 0 and "repeated" not in done.stderr, done.stderr


def by_command(folder, net, x, labels, wanted):
    np.savez(f"{folder}/data.npz", input=x.numpy(), labels=labels.numpy())
    cleave.export(net, (x[:2],), f"{folder}/model.onnx")
    data = {"kind": "arrays", "path": f"{folder}/data.npz", "shuffle": False, "last_batch": "smaller"}
    plans = [cleave.compile(f"{folder}/model.onnx", {**RECIPE, "data": data}, cluster, f"{folder}/{i}.plan", **split).path
             for i, (cluster, split) in enumerate(SPLITS)]
    for i, plan in enumerate(plans):  # and resumed on another split behind the smaller batch
        metrics = pathlib.Path(folder, f"{i}.jsonl")
        run(plan, "--steps", 3, "--snapshot", f"{folder}/s{i}", "--metrics", metrics)
        run(plans[i - 1], "--steps", 3 * EPOCHS, "--resume", "--snapshot", f"{folder}/s{i}", "--metrics", metrics)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        close([line["loss"] for line in lines], wanted)
        assert [round(line["samples_per_s"] * line["step_time_s"]) for line in lines] == [8, 8, 5] * EPOCHS
    run(plans[0], "--metrics", f"{folder}/epoch.jsonl")
    assert len(pathlib.Path(folder, "epoch.jsonl").read_text().splitlines()) == 3
    ramped = cleave.compile(f"{folder}/model.onnx", {**RECIPE, "data": data, "ramp": [{"until": 2, "batch": 4}]}, "cpu:2", mesh="dp=2")
    run(ramped.path, "--steps", 5, "--metrics", f"{folder}/ramp.jsonl")
    loader = [(x[a:b], labels[a:b]) for a, b in [(0, 4), (4, 8), (8, 16), (16, 21), (0, 8)]]
    close([json.loads(line)["loss"] for line in pathlib.Path(folder, "ramp.jsonl").read_text().splitlines()], by_torch(net, loader, 1))
    unignoring = {**RECIPE, "loss": {**LOSS, "ignore_index": None}, "data": data}
    refused(lambda: cleave.compile(f"{folder}/model.onnx", unignoring, "cpu:1"),
            "data.last_batch cannot be smaller: loss softmax_cross_entropy ignores no label: ignore_index is null")


def by_trainer(net, x, labels, loader, wanted):
    for cluster, split in SPLITS[1], SPLITS[3]:
        plan = cleave.compile(net, RECIPE, cluster, example=(x[:2],), check=False, **split)
        with cleave.Trainer(plan) as trainer:
            close([trainer.step({"input": a, "labels": b}).loss for _ in range(EPOCHS) for a, b in loader], wanted)
            refused(lambda: trainer.step({"input": x[:8], "labels": labels[:5]}), "different numbers of samples", "'labels' has 5")
            refused(lambda: trainer.step({"input": x[:5]}), "'labels' is left out")
            refused(lambda: trainer.step({"input": x[:9], "labels": labels[:9]}), "input 'input' has shape (8, 8) in the plan and (9, 8) here")
    own = copy.deepcopy(net)
    close([metrics.loss for metrics in cleave.fit(own, loader, RECIPE, epochs=EPOCHS)], wanted)


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    x, labels = torch.randn(SAMPLES, 8), torch.randint(0, 4, (SAMPLES,))
    labels[3] = labels[17] = -100
    loader = DataLoader(TensorDataset(x, labels), batch_size=BATCH)
    wanted = by_torch(net, loader, EPOCHS)
    with tempfile.TemporaryDirectory() as folder:
        by_command(folder, net, x, labels, wanted)
    by_trainer(net, x, labels, loader, wanted)
    normed = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    refused(lambda: cleave.fit(normed, loader, {"loss": LOSS}), "a step of fewer samples cannot be: the samples of a batch meet at",
            "drop_last=True")
    print("smaller batches: as expected")


main()
