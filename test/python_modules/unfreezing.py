"""`run --resume --recipe`: layers that train later or no longer, another rate, beside torch's add_param_group; a plan of its
own is refused."""
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

BATCH, PART = 8, 3
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}), ("cpu:2", {"mesh": "pp=2", "microbatches": 2})]
KINDS = {"adamw": torch.optim.AdamW, "nadam": torch.optim.NAdam, "radam": torch.optim.RAdam}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def by_torch(kind, x, labels):
    """A third with the last two layers, a third with the one before, too, and half the rate, a third without the last one."""
    module, losses = net(), []
    optimizer = KINDS[kind](module[4:].parameters(), 1e-2)
    for step in range(3 * PART):
        if step == PART:
            optimizer.add_param_group({"params": module[2].parameters()})
        if step == 2 * PART:
            module[6].requires_grad_(False)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 if step < PART else 5e-3
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(x[step * BATCH:][:BATCH]), labels[step * BATCH:][:BATCH])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def tool(*words, fails=False):
    done = subprocess.run([tool_path(), *map(str, words)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr


def moved(kind, cluster, split, x, labels):
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", input=x.numpy(), labels=labels.numpy())
        recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": kind, "lr": 1e-2},
                  "data": {"kind": "arrays", "path": f"{folder}/data.npz", "shuffle": False}, "trainable": ["4.*", "6.*"]}
        cleave.export(net(), (x[:2],), f"{folder}/model.onnx")
        plan = cleave.compile(f"{folder}/model.onnx", recipe, cluster, f"{folder}/x.plan", **split)
        run = ["run", plan.path, "--quiet", "--snapshot", f"{folder}/s", "--metrics", f"{folder}/m.jsonl"]
        tool(*run, "--steps", PART)
        later = dict(recipe, trainable=["2.*", "4.*", "6.*"])
        pathlib.Path(folder, "later.yaml").write_text(json.dumps(later))
        more = ["--resume", "--recipe", f"{folder}/later.yaml", "--set", "optimizer.lr=5e-3"]
        tool(*run, "--steps", PART + 1, *more)
        tool(*run, "--steps", 2 * PART, *more)  # the state goes on where it began
        tool(*run, "--steps", 3 * PART, *more, "--set", 'trainable=["2.*", "4.*"]')
        other = cleave.compile(f"{folder}/model.onnx", later, cluster, f"{folder}/y.plan", **split)
        told = tool("run", other.path, "--steps", 99, "--resume", "--snapshot", f"{folder}/s", fails=True)
        assert "`cleave run --resume --recipe` goes on with another recipe" in told, told
        told = tool(*run, "--steps", 99, *more, "--set", "optimizer.kind=sgd", fails=True)
        assert "another optimizer cannot go on with it" in told, told
        told = tool(*run, "--steps", 99, *more, "--set", "optimizer.state_dtype=bf16", fails=True)
        assert "a resumed run keeps its 'optimizer.state_dtype'" in told, told
        told = tool("run", plan.path, "--recipe", f"{folder}/later.yaml", fails=True)
        assert "--recipe wants --resume and --snapshot DIR" in told, told
        return [json.loads(line)["loss"] for line in pathlib.Path(folder, "m.jsonl").read_text().splitlines()]


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    x, labels, failed = torch.randn(3 * PART * BATCH, 8), torch.randint(0, 4, (3 * PART * BATCH,)), 0
    for kind, splits in ("adamw", SPLITS), ("nadam", SPLITS[1:2]), ("radam", SPLITS[2:3]):
        wanted = by_torch(kind, x, labels)
        for cluster, split in splits:
            losses = moved(kind, cluster, split, x, labels)
            if len(losses) != len(wanted) or not np.allclose(losses, wanted, rtol=1e-5):
                failed += 1
                print(f"{kind} on {cluster} {split}: {losses}, torch {wanted}")
    print(f"unfreezing: {'as expected' if not failed else f'{failed} differ'}")


main()
