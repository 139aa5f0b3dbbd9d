"""Moving averages of weights beside torch's AveragedModel: exported, evaluated, and resumed on another split."""
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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS, BATCH = 8, 8
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 1}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}),
          ("cpu:2", {"mesh": "pp=2", "microbatches": 2})]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))


def by_torch(x, labels, decay, every):
    """The averaged module after all steps, and its losses of the held-out samples after steps 4 and 8."""
    module, losses = net(), []
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for step in range(STEPS):
        at = slice(step % 4 * BATCH, step % 4 * BATCH + BATCH)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[at]), labels[at]).backward()
        optimizer.step()
        if (step + 1) % every == 0:
            average.update_parameters(module)
        if (step + 1) % 4 == 0:
            losses.append(nn.functional.cross_entropy(average(x[32:]), labels[32:]).item())
    return average.module, losses


def run(plan, folder, steps, *more):
    done = subprocess.run([tool_path(), "run", str(plan.path), "--data", f"{folder}/data.npz", "--steps", str(steps), "--quiet",
                           "--snapshot", f"{folder}/s", "--metrics", f"{folder}/{steps}.jsonl", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["eval_loss"] for line in pathlib.Path(folder, f"{steps}.jsonl").read_text().splitlines() if "eval_loss" in line]


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    x, labels, failed = torch.randn(40, 8), torch.randint(0, 4, (40,)), 0
    for decay, every in (0.9, 1), (0.5, 2):
        average, losses = by_torch(x, labels, decay, every)
        for cluster, split in SPLITS:
            with tempfile.TemporaryDirectory() as folder:
                recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2},
                          "ema": {"decay": decay, "every": every}, "eval": {"every": 4, "batches": 1},
                          "data": {"kind": "arrays", "path": f"{folder}/data.npz", "train_split": 0.8, "shuffle": False}}
                plans = [cleave.compile(net(), recipe, where, f"{folder}/{i}.plan", example=(x[:2],), check=False, **flags)
                         for i, (where, flags) in enumerate([(cluster, split), ("cpu:2", {"mesh": "dp=2", "zero": 1})])]
                np.savez(f"{folder}/data.npz", input=x.numpy(), labels=labels.numpy())
                told = run(plans[0], folder, 4) + run(plans[1], folder, STEPS, "--resume")
                after = net()
                cleave.load_into(after, f"{folder}/s", ema=True)
                assert plans[0].verify(), "verify"
            wrong = max(((after.state_dict()[key] - value).norm() / value.norm()).item() for key, value in average.state_dict().items())
            off = max(abs(a - b) / b for a, b in zip(told, losses))
            if not (wrong < 2e-5 and off < 2e-5 and len(told) == 2):
                failed += 1
                print(f"decay {decay}, every {every} on {cluster} {split}: losses {told}, torch {losses}, weights off by {wrong:.1e}")
    # Steps that fp16 skips average nothing: the first weights stay.
    recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.1}, "precision": "fp16",
              "loss_scale": {"init": 2.0**40}, "ema": {"decay": 0.9}}
    plan = cleave.compile(net(), recipe, "cpu:1", example=(x[:2],), check=False)
    with tempfile.TemporaryDirectory() as folder, cleave.Trainer(plan, snapshots=f"{folder}/s") as trainer:
        trainer.step({"input": x[:BATCH].numpy(), "labels": labels[:BATCH].numpy()})
        failed += not all(torch.equal(value, net().state_dict()[name]) for name, value in trainer.state_dict(ema=True).items())
    print(f"averages: {'as expected' if not failed else f'{failed} differ'}")


main()
