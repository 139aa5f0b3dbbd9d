"""Several losses, a frozen teacher, embeddings and CTC beside PyTorch: each loss in the metrics and in evaluations, on one device and
split, and resumed on another split.

    several_losses.py [NAME...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import cleave
import numpy as np
import torch
from cleave._tool import tool_path
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, SAMPLES = 6, 8, 40
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3, "microbatches": 2}), ("cpu:2", {"mesh": "tp=2"}),
          ("cpu:2", {"mesh": "pp=2", "microbatches": 2})]
T, LONGEST = 7, 3


class Heads(nn.Module):
    """Outputs by name, of a body and a linear layer each."""

    def __init__(self, outputs, heads):
        super().__init__()
        self.body, self.outputs = nn.Linear(8, 16), outputs
        self.heads = nn.ModuleDict({name: nn.Linear(16, size) for name, size in heads.items()})

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.outputs({name: head(h) for name, head in self.heads.items()})


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6)) for _ in range(2))

    def forward(self, x):
        logits = self.student(x)
        return logits, F.log_softmax(logits / 2, -1), F.softmax(self.teacher(x) / 2, -1)


class Shifted(nn.Module):
    """Log-probabilities of x [batch, step, class] itself."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return F.log_softmax(x + self.shift, -1)


def labels_of(random):
    classes = random.integers(0, 6, SAMPLES)
    classes[::5] = -100
    steps = random.integers(6, T + 1, SAMPLES)
    few = steps.copy()
    few[9], few[12] = 2, 0  # too few for three labels: infinity, or nothing
    sign = random.choice([-1.0, 1.0], (SAMPLES, 16)).astype(np.float32)
    target = random.integers(1, 6, (SAMPLES, LONGEST))
    lengths = random.integers(1, LONGEST + 1, SAMPLES)
    lengths[3], lengths[9] = 0, 3
    target[np.arange(LONGEST) >= lengths[:, None]] = -1  # padding may be anything
    target[0], lengths[0] = 2, 3  # the same label again and again needs blanks between them
    return {"labels": classes, "all": random.integers(0, 6, SAMPLES), "box": random.standard_normal((SAMPLES, 3)).astype(np.float32),
            "sign": sign, "pair": sign[:, 0].copy(), "targets": target, "others": target - 1, "input_lengths": steps, "few": few,
            "target_lengths": lengths}


def two(head):
    return head["a"], head["b"]


def three(head):
    return head["a"], head["b"], head["c"]


def frames(head):
    return F.log_softmax(head["a"].reshape(-1, T, 6), -1)


def steps_first(head):
    return frames(head).transpose(0, 1)


def heads(count, size=16):
    return {name: size for name in "abc"[:count]}


def ctc(x, batch, targets="targets", steps="input_lengths", **keys):
    return F.ctc_loss(x, batch[targets], batch[steps], batch["target_lengths"], **keys)


CTC = {"kind": "ctc", "labels": {"name": "targets", "shape": ["batch", str(LONGEST)]}}
W = [1.0, 0.5, 2.0, 0.0, 3.0, 1.5]
# name: (module, names of its outputs, the recipe's losses, the same by torch, with their names; frozen)
CASES = {
    "heads": (lambda: Heads(lambda head: (head["cls"], head["box"]), {"cls": 6, "box": 3}), ["cls", "box"],
              [{"kind": "softmax_cross_entropy", "output": "cls", "weight": W, "name": "cls"},
               {"kind": "mse", "output": "box", "labels": "box", "scale": 0.3, "name": "box"},
               {"kind": "nll", "output": "cls", "scale": -0.01}],
              lambda out, batch: {"cls": F.cross_entropy(out[0], batch["labels"], torch.tensor(W)), "box": F.mse_loss(out[1], batch["box"]),
                                  "nll": F.nll_loss(out[0], batch["labels"])}, []),
    "of_graph": (lambda: Heads(lambda head: (head["cls"], head["box"].square().mean() + head["box"].exp().mean()), {"cls": 6, "box": 3}),
                 ["cls", "extra"],
                 [{"kind": "softmax_cross_entropy", "output": "cls"}, {"kind": "output", "output": "extra", "scale": 0.5, "name": "extra"}],
                 lambda out, batch: {"softmax_cross_entropy": F.cross_entropy(out[0], batch["labels"]), "extra": out[1]}, []),
    "distillation": (Student, ["logits", "student", "teacher"],
                     [{"kind": "kl_div", "reduction": "batchmean", "output": "student", "labels": {"output": "teacher"}, "scale": 4.0,
                       "name": "distill"}, {"kind": "softmax_cross_entropy", "output": "logits"}],
                     lambda out, batch: {"distill": F.kl_div(out[1], out[2].detach(), reduction="batchmean"),
                                         "softmax_cross_entropy": F.cross_entropy(out[0], batch["labels"])}, ["teacher*"]),
    "shared_teacher": (Student, ["logits", "student", "teacher"],  # trains by another loss, and not by this one
                       [{"kind": "softmax_cross_entropy", "output": "logits", "labels": {"output": "teacher"}, "name": "soft"},
                        {"kind": "kl_div", "log_target": True, "output": "teacher", "labels": {"output": "student"}, "scale": 0.1}],
                       lambda out, batch: {"soft": F.cross_entropy(out[0], out[2].detach()),
                                           "kl_div": F.kl_div(out[2], out[1].detach(), log_target=True)}, []),
    "cosine": (lambda: Heads(two, heads(2)), ["a", "b"],
               [{"kind": "cosine_embedding", "output": ["a", "b"], "margin": 0.2, "labels": "pair"}],
               lambda out, batch: {"cosine_embedding": F.cosine_embedding_loss(*out, batch["pair"], margin=0.2)}, []),
    "triplet": (lambda: Heads(three, heads(3)), ["a", "b", "c"],
                [{"kind": "triplet", "output": ["a", "b", "c"], "margin": 0.5},
                 {"kind": "triplet", "output": ["a", "b", "c"], "p": 1, "swap": True, "reduction": "sum", "scale": 0.01, "name": "swapped"}],
                lambda out, batch: {"triplet": F.triplet_margin_loss(*out, margin=0.5),
                                    "swapped": F.triplet_margin_loss(*out, p=1, swap=True, reduction="sum")}, []),
    "ranking": (lambda: Heads(two, heads(2)), ["a", "b"],
                [{"kind": "margin_ranking", "output": ["a", "b"], "margin": 0.1, "labels": "sign"},
                 {"kind": "hinge_embedding", "output": "a", "labels": "sign", "margin": 0.7}],
                lambda out, batch: {"margin_ranking": F.margin_ranking_loss(*out, batch["sign"], margin=0.1),
                                    "hinge_embedding": F.hinge_embedding_loss(out[0], batch["sign"], margin=0.7)}, []),
    "multi_margin": (lambda: Heads(lambda head: head["a"], heads(1, 6)), ["a"],
                     [{"kind": "multi_margin", "labels": "all"}, {"kind": "multi_margin", "p": 2, "margin": 0.5, "weight": W, "name": "squared",
                                                                  "labels": "all"}],
                     lambda out, batch: {"multi_margin": F.multi_margin_loss(out, batch["all"]),
                                         "squared": F.multi_margin_loss(out, batch["all"], 2, 0.5, torch.tensor(W))}, []),
    "ctc": (lambda: Heads(frames, heads(1, T * 6)), ["a"], [CTC], lambda out, batch: {"ctc": ctc(out.transpose(0, 1), batch)}, []),
    "ctc_sum": (lambda: Heads(steps_first, heads(1, T * 6)), ["a"], [{**CTC, "labels": {"name": "others", "shape": ["batch", str(LONGEST)]}, "reduction": "sum", "scale": 0.1, "blank": 5,
                  "zero_infinity": True, "input_lengths": "few"}],
                lambda out, batch: {"ctc": ctc(out, batch, "others", "few", blank=5, reduction="sum", zero_infinity=True)}, []),
}


def by_torch(module, case, samples):
    """Each step's losses by name and their sum, and those of the held-out samples after the third and the last step."""
    _, _, losses, values, frozen = case
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not any(name.startswith(glob.rstrip("*")) for glob in frozen))
    optimizer = torch.optim.SGD([parameter for parameter in module.parameters() if parameter.requires_grad], 0.1)
    scales = [loss.get("scale", 1.0) for loss in losses]
    found = []

    def at(where):
        batch = {name: torch.from_numpy(array[where]) for name, array in samples.items()}
        each = values(module(batch["x"]), batch)
        total = sum(scale * value for scale, value in zip(scales, each.values()))
        return total, {"loss": total.item(), **{f"loss.{name}": value.item() for name, value in each.items()}}
    for step in range(STEPS):
        begin = step * BATCH % 32
        total, told = at(slice(begin, begin + BATCH))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            told.update({f"eval_{name}": value for name, value in at(slice(32, 40))[1].items()})
        found.append(told)
    return found


def run(plan, folder, steps, *more):
    done = subprocess.run([tool_path(), "run", str(plan.path), "--data", f"{folder}/data.npz", "--steps", str(steps), "--quiet",
                           "--snapshot", f"{folder}/s", "--metrics", f"{folder}/{steps}.jsonl", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in pathlib.Path(folder, f"{steps}.jsonl").read_text().splitlines()]


def refuses_nan(random, samples, zero_infinity):
    """Whether a run ends at a step whose loss PyTorch makes NaN by one frame behind the first."""
    module = Shifted()
    data = {name: samples[name][:BATCH] for name in ("targets", "input_lengths", "target_lengths")}
    data["x"] = random.standard_normal((BATCH, T, 6)).astype(np.float32)
    data["x"][2, 4, 1] = np.nan
    batch = {name: torch.from_numpy(array) for name, array in data.items()}
    assert ctc(module(batch["x"]).transpose(0, 1), batch, zero_infinity=zero_infinity).isnan()
    with tempfile.TemporaryDirectory() as folder:
        cleave.export(module, torch.zeros(2, T, 6), f"{folder}/m.onnx", input_names=["x"])
        np.savez(f"{folder}/data.npz", **data)
        recipe = {"dims": {"batch": BATCH}, "loss": {**CTC, "zero_infinity": zero_infinity}, "optimizer": {"kind": "sgd", "lr": 0.1},
                  "data": {"kind": "arrays", "path": f"{folder}/data.npz"}}
        plan = cleave.compile(f"{folder}/m.onnx", recipe, "cpu:1", f"{folder}/x.plan")
        done = subprocess.run([tool_path(), "run", str(plan.path), "--steps", "1", "--quiet"], capture_output=True, text=True)
        return done.returncode != 0 and "the loss is not finite" in done.stderr


def main():
    warnings.simplefilter("ignore")
    random, failed = np.random.default_rng(1), 0
    samples = {"x": random.standard_normal((SAMPLES, 8)).astype(np.float32), **labels_of(random)}
    for name in sys.argv[1:] or CASES:
        make, outputs, losses, _, frozen = case = CASES[name]
        torch.manual_seed(0)
        module = make()
        if name == "ctc":
            failed += sum(not refuses_nan(random, samples, zero_infinity) for zero_infinity in (False, True))
        with tempfile.TemporaryDirectory() as folder:
            cleave.export(module, torch.zeros(2, 8), f"{folder}/m.onnx", input_names=["x"], output_names=outputs)
            recipe = {"dims": {"batch": BATCH}, "loss": losses, "optimizer": {"kind": "sgd", "lr": 0.1}, "eval": {"every": 3, "batches": 1},
                      "data": {"kind": "arrays", "path": f"{folder}/data.npz", "train_split": 0.8, "shuffle": False},
                      **({"frozen": frozen} if frozen else {})}
            check = cleave.check_import(module, f"{folder}/m.onnx", recipe=recipe, example=(torch.randn(4, 8),))  # in float64
            if not check.loss_error < 1e-6:
                failed += 1
                print(f"{name}: off by {check.loss_error:.1e} of PyTorch's loss in {check.precision}")
            expected = by_torch(module, case, samples)
            np.savez(f"{folder}/data.npz", **samples)
            plans = [cleave.compile(f"{folder}/m.onnx", recipe, cluster, f"{folder}/{i}.plan", **split)
                     for i, (cluster, split) in enumerate(SPLITS)]
            for i, plan in enumerate(plans):  # the second half on the next split
                told = run(plan, folder, 3, "--overwrite") + run(plans[(i + 1) % len(plans)], folder, STEPS, "--resume")[-3:]
                keys = {key for line in told for key in line if "loss" in key}
                off = max((abs(line.get(key, np.inf) - value) / max(abs(value), 0.1), key, step + 1) for step, (line, want) in
                          enumerate(zip(told, expected)) for key, value in want.items())
                if not off[0] < 2e-5 or keys != {key for line in expected for key in line}:
                    failed += 1
                    print(f"{name} on {SPLITS[i]}: {off}, {sorted(keys)}: {told}, torch {expected}")
    print(f"several losses: {'as expected' if not failed else f'{failed} differ'}")


main()
