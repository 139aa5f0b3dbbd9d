"""Evaluation metrics beside torch: during a run, by `cleave eval`, by Trainer.evaluate, on every split; early stopping."""
import json
import pathlib
import subprocess
import tempfile
import warnings

import cleave
import numpy as np
import onnx
import torch
from cleave._tool import tool_path
from torch import nn
from torch.nn import functional as F

BATCH, CLASSES = 8, 6
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}), ("cpu:1", {"microbatches": 4}),
          ("cpu:2", {"mesh": "pp=2", "microbatches": 2})]


def net(outputs=CLASSES):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, outputs))


def confusion(wanted, said, classes):
    return torch.bincount(wanted * classes + said, minlength=classes * classes).reshape(classes, classes)


def f1(table, of):
    scores = [2 * table[c, c] / (table[c].sum() + table[:, c].sum()) for c in of if table[c].sum() + table[:, c].sum() > 0]
    return float(sum(scores) / len(scores))


def of_classes(x, t):
    x, t = x[t != -100], t[t != -100]
    table = confusion(t, x.argmax(1), CLASSES)
    return {"accuracy": (x.argmax(1) == t).float().mean().item(), "top_3": (x.topk(3).indices == t[:, None]).any(1).float().mean().item(),
            "f1": f1(table, range(CLASSES)), "table": table.tolist(), "perplexity": F.cross_entropy(x, t).exp().item()}


def of_flags(x, t):
    table = confusion(t.long().flatten(), (x > 0).long().flatten(), 2)
    return {"accuracy": ((x > 0) == (t > 0.5)).float().mean().item(), "f1": f1(table, [1]), "confusion": table.tolist()}


def of_shares(x, t):
    return {"accuracy": (x.argmax(1) == t.argmax(1)).float().mean().item(),
            "top_2": (x.topk(2).indices == t.argmax(1)[:, None]).any(1).float().mean().item()}


def of_numbers(x, t):
    return {"mae": (x - t).abs().mean().item()}


def cases():
    """name: (loss of the recipe, by torch, labels of 48 samples, outputs, metrics of the recipe, by torch)"""
    random = np.random.default_rng(2)
    classes = random.integers(0, CLASSES, 48)
    classes[::7] = -100
    shares = random.random((48, CLASSES)).astype(np.float32)
    return {
        "classes": ({"kind": "softmax_cross_entropy"}, F.cross_entropy, classes, CLASSES,
                    ["accuracy", "top_3", "f1", {"kind": "confusion", "name": "table"}, "perplexity"], of_classes),
        "flags": ({"kind": "bce_with_logits"}, F.binary_cross_entropy_with_logits, random.integers(0, 2, (48, 3)).astype(np.float32), 3,
                  ["accuracy", "f1", "confusion"], of_flags),
        "shares": ({"kind": "softmax_cross_entropy", "labels": {"name": "labels", "dtype": "float32"}}, F.cross_entropy,
                   shares / shares.sum(1, keepdims=True), CLASSES, ["accuracy", "top_2"], of_shares),
        "numbers": ({"kind": "mse"}, F.mse_loss, random.random((48, 3)).astype(np.float32), 3, ["mae"], of_numbers),
    }


def tool(*words):
    done = subprocess.run([tool_path(), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_near(told, wanted):
    return set(told) == set(wanted) and all(np.allclose(told[key], wanted[key], rtol=2e-5, atol=1e-6) for key in wanted)


def evaluated(module, loss, of, x, t):
    with torch.no_grad():
        return {"loss": loss(module(x), t).item(), **of(module(x), t)}


def told_by(folder):
    lines = [json.loads(line) for line in pathlib.Path(folder, "m.jsonl").read_text().splitlines()]
    return [{key[5:]: value for key, value in line.items() if key.startswith("eval_")} for line in lines if "eval_loss" in line]


def compare(name, cluster, split, x, loss, by_torch, labels, outputs, metrics, of):
    """The metrics of two evaluations in a run, of all samples by the command, and of two batches by Trainer.evaluate."""
    recipe = {"dims": {"batch": BATCH}, "loss": loss, "optimizer": {"kind": "adamw", "lr": 1e-2},
              "eval": {"every": 2, "batches": 2, "metrics": metrics},
              "data": {"kind": "arrays", "path": "data.npz", "train_split": 0.5, "shuffle": False}}
    module, labels = net(outputs), torch.from_numpy(labels)
    optimizer, wanted = torch.optim.AdamW(module.parameters(), 1e-2), []
    for step in range(4):
        at = slice(step % 3 * BATCH, step % 3 * BATCH + BATCH)
        optimizer.zero_grad()
        by_torch(module(x[at]), labels[at]).backward()
        optimizer.step()
        if step % 2 == 1:
            wanted.append(evaluated(module, by_torch, of, x[24:40], labels[24:40]))
    rest, all_of_it = (evaluated(module, by_torch, of, x[at:], labels[at:]) for at in (24, 0))
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/data.npz"
        np.savez(data, input=x.numpy(), labels=labels.numpy())
        recipe["data"]["path"] = data
        plan = cleave.compile(net(outputs), recipe, cluster, f"{folder}/x.plan", example=(x[:2],), check=False, **split)
        tool("run", plan.path, "--steps", 4, "--quiet", "--snapshot", f"{folder}/s", "--metrics", f"{folder}/m.jsonl")
        by_tool = [json.loads(tool("eval", plan.path, f"{folder}/s", *more, "--json")) for more in ([], ["--data", data])]
        with cleave.Trainer(plan, snapshots=f"{folder}/s", resume=True) as trainer:
            own = trainer.evaluate([{"input": x[at:at + BATCH], "labels": labels[at:at + BATCH]} for at in (24, 32)])
            held_out = trainer.evaluate(2)
            after = trainer.step().loss  # on the recipe's data, whatever was evaluated
        at = slice(BATCH, 2 * BATCH)
        pairs = [*zip(told_by(folder), wanted), *((dict(found["metrics"], loss=found["loss"]), right) for found, right in
                 [(by_tool[0], rest), (by_tool[1], all_of_it), (own, wanted[-1]), (held_out, wanted[-1])])]
    wrong = [pair for pair in pairs if not is_near(*pair)]
    if abs(after - by_torch(module(x[at]), labels[at]).item()) > 2e-5 * after:
        wrong.append(("the step after", after))
    for pair in wrong:
        print(f"{name} on {cluster} {split}: {pair[0]}, torch {pair[1]}")
    return not wrong and len(pairs) == 6


def by_inputs():
    """A module that computes its loss: metrics name the output and the labels; those of no class do not count."""
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, targets):
            logits = self.net(x)
            return F.cross_entropy(logits, targets), logits
    x, t = torch.randn(BATCH, 8), torch.randint(0, CLASSES, (BATCH,))
    t[2] = -100
    with tempfile.TemporaryDirectory() as folder:
        cleave.export(Own(), (x, t), f"{folder}/own.onnx")
        outputs = [output.name for output in onnx.load(f"{folder}/own.onnx", load_external_data=False).graph.output]
        recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "output", "output": outputs[0]}, "optimizer": {"kind": "sgd", "lr": 0.1},
                  "eval": {"metrics": [{"kind": "accuracy", "output": outputs[1], "labels": "targets"}, "perplexity",
                                       {"kind": "mean", "output": outputs[1], "name": "logit"}]}}
        with cleave.Trainer(cleave.compile(f"{folder}/own.onnx", recipe, "cpu:2", mesh="tp=2")) as trainer:
            found = trainer.evaluate({"x": x, "targets": t})
    logits = net()(x)
    wanted = {"accuracy": (logits.argmax(1) == t)[t != -100].float().mean().item(), "logit": logits.mean().item(),
              "perplexity": F.cross_entropy(logits, t).exp().item()}
    return is_near(found["metrics"], wanted) or print(f"own loss: {found}, torch {wanted}")


def early():
    """A run of a rate that is too high ends by itself, also where it is cut in two; the best snapshot is kept."""
    torch.manual_seed(3)
    x, labels = torch.randn(48, 8), torch.randint(0, CLASSES, (48,))
    recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.5},
              "data": {"kind": "arrays", "path": "data.npz", "train_split": 0.5},
              "eval": {"every": 2, "batches": 3, "metrics": ["accuracy"], "monitor": "accuracy", "patience": 3}}
    right = True
    with tempfile.TemporaryDirectory() as folder:
        recipe["data"]["path"] = f"{folder}/data.npz"
        np.savez(f"{folder}/data.npz", input=x.numpy(), labels=labels.numpy())
        plan = cleave.compile(net(), recipe, "cpu:2", f"{folder}/x.plan", example=(x[:2],), check=False)
        ends = []
        for cuts in ([100], [7, 100]):
            for number, steps in enumerate(cuts):
                told = json.loads(tool("run", plan.path, "--steps", steps, "--quiet", "--json", "--keep-best", "--snapshot",
                                       f"{folder}/s{len(cuts)}", "--metrics", f"{folder}/m.jsonl", *(["--resume"] if number else [])))
            scores = [entry["accuracy"] for entry in told_by(folder)]
            best = scores.index(max(scores))
            kept = pathlib.Path(folder, f"s{len(cuts)}", "best").resolve().name
            right &= told["ended_early"] and len(scores) == best + 4 and kept == f"step-{2 * best + 2:08}"
            ends.append((told["step"], scores))
    return (right and ends[0] == ends[1]) or print(f"early stopping: {ends}, kept {kept}")


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    x = torch.randn(48, 8)
    done = [compare(name, cluster, split, x, *case) for name, case in cases().items()
            for cluster, split in (SPLITS if name == "classes" else SPLITS[2:])]
    done += [by_inputs(), early()]
    print(f"evaluation: {'as expected' if all(done) else f'{len(done) - sum(map(bool, done))} differ'}")


main()
