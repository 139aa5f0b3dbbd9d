"""Clipping by group beside clip_grad_norm_, and steps that skip_outliers leaves out beside a loop in PyTorch: on one device and split,
and resumed on another split, bit for bit where it is the same."""
import json
import pathlib
import subprocess
import tempfile
import warnings

import cleave
import numpy as np
import torch
from cleave._tool import tool_path
from torch import nn

STEPS, BATCH = 14, 8
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3, "microbatches": 2}), ("cpu:2", {"mesh": "tp=2"}),
          ("cpu:2", {"mesh": "pp=2", "microbatches": 2})]
OUTLIERS = {"factor": 3, "decay": 0.8, "warmup": 2}
GROUPS = [{"match": ["0.*"], "norm": 0.05}, {"match": ["2.*", "0.weight"], "norm": 0.1}, {"match": ["4.bias"], "norm": 0.01}]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def by_torch(x, labels, clip, outliers):
    """The losses, and how many steps were left out so far."""
    module, told = net(), []
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    mean = weight = steps = skipped = 0
    for step in range(STEPS):
        at = slice(step * BATCH, step * BATCH + BATCH)
        loss = nn.functional.mse_loss(module(x[at]), labels[at])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), torch.inf).item()
        most = OUTLIERS["factor"] * mean / weight if steps >= OUTLIERS["warmup"] else np.inf
        skips = outliers and norm > most
        mean = OUTLIERS["decay"] * mean + (1 - OUTLIERS["decay"]) * min(norm, most)
        weight = OUTLIERS["decay"] * weight + 1 - OUTLIERS["decay"]
        steps, skipped = steps + 1, skipped + skips
        if clip:
            for layers, most in [([module[0]], 0.05), ([module[2]], 0.1)]:
                nn.utils.clip_grad_norm_([p for layer in layers for p in layer.parameters()], most)
            nn.utils.clip_grad_norm_([module[4].bias], 0.01)
            nn.utils.clip_grad_norm_([module[4].weight], 0.02)
        if not skips:
            optimizer.step()
        told.append((loss.item(), norm, skipped))
    return told


def run(plan, folder, name, steps, *more):
    done = subprocess.run([tool_path(), "run", str(plan.path), "--steps", str(steps), "--quiet", "--snapshot", f"{folder}/{name}",
                           "--metrics", f"{folder}/{name}.jsonl", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in pathlib.Path(folder, f"{name}.jsonl").read_text().splitlines()]


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    x, labels, failed = torch.randn(STEPS * BATCH, 8), torch.randn(STEPS * BATCH, 4), 0
    labels[4 * BATCH:5 * BATCH] *= 50  # one step with a norm like no other
    labels[8 * BATCH:] *= 30           # and a norm that stays
    for clip, outliers in (True, False), (True, True):
        recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "mse"}, "optimizer": {"kind": "adam", "lr": 1e-2},
                  **({"clip_norms": GROUPS, "clip_norm": 0.02} if clip else {}), **({"skip_outliers": OUTLIERS} if outliers else {})}
        expected = by_torch(x, labels, clip, outliers)
        assert not outliers or 1 < expected[-1][2] == expected[-2][2], expected  # the norm that stays is not skipped for ever
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/data.npz", input=x.numpy(), labels=labels.numpy())
            recipe["data"] = {"kind": "arrays", "path": f"{folder}/data.npz", "shuffle": False}
            plans = [cleave.compile(net(), recipe, cluster, f"{folder}/{i}.plan", example=(x[:2],), check=False, **split)
                     for i, (cluster, split) in enumerate(SPLITS)]
            for i, plan in enumerate(plans):  # the second half on the next split
                told = run(plan, folder, f"s{i}", 6) + run(plans[(i + 1) % len(plans)], folder, f"s{i}", STEPS, "--resume")[6:]
                wrong = [step + 1 for step, (line, (loss, norm, skipped)) in enumerate(zip(told, expected))
                         if not (abs(line["loss"] - loss) < 2e-5 * loss and abs(line["grad_norm"] - norm) < 1e-4 * norm and
                                 line.get("skipped", 0) == skipped)]
                if wrong or len(told) != STEPS or ("skipped" in told[0]) != outliers:
                    failed += 1
                    print(f"clip {clip}, outliers {outliers} on {SPLITS[i]}: steps {wrong}: {told}, torch {expected}")
            whole, halves = run(plans[0], folder, "whole", STEPS), run(plans[0], folder, "halves", 5)
            halves = run(plans[0], folder, "halves", STEPS, "--resume")
            if [line["loss"] for line in whole] != [line["loss"] for line in halves]:
                failed += 1
                print(f"clip {clip}, outliers {outliers}: resumed {halves}, in one run {whole}")
            assert plans[1].verify()
    print(f"clipping: {'as expected' if not failed else f'{failed} differ'}")


main()
