"""A training that moves from torch to Cleave and back in the middle, beside the one that stays in torch."""
import tempfile
import warnings

import cleave
import numpy as np
import torch
from torch import nn

BATCH, PART = 8, 3
ONE, DP, TP, PP = ("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}), ("cpu:2", {"mesh": "pp=2", "microbatches": 2})
O = torch.optim
# name: (torch's optimizer, the recipe's, splits)
CASES = {
    "adamw": (lambda p: O.AdamW(p, 1e-2, amsgrad=True), {"kind": "adamw", "amsgrad": True}, [ONE, DP, TP, PP]),
    "sgd": (lambda p: O.SGD(p, 1e-2, 0.9), {"kind": "sgd", "momentum": 0.9}, [TP]),
    "adagrad": (lambda p: O.Adagrad(p, 1e-2), {"kind": "adagrad"}, [DP]),
    "rmsprop": (lambda p: O.RMSprop(p, 1e-2, momentum=0.9, centered=True), {"kind": "rmsprop", "momentum": 0.9, "centered": True}, [PP]),
    "nadam": (lambda p: O.NAdam(p, 1e-2), {"kind": "nadam"}, [DP]),
    "radam": (lambda p: O.RAdam(p, 1e-2), {"kind": "radam"}, [TP]),
    "adamax": (lambda p: O.Adamax(p, 1e-2), {"kind": "adamax"}, [PP]),
    "adadelta": (lambda p: O.Adadelta(p, 1e-2), {"kind": "adadelta"}, [DP]),
}


class Net(nn.Module):
    """A tied table, a recurrent layer whose gates an exporter orders anew, transposed and frozen weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.rnn, self.norm, self.head = nn.Embedding(12, 16), nn.LSTM(16, 16, batch_first=True), nn.LayerNorm(16), nn.Linear(16, 12)
        self.head.weight = self.table.weight
        self.norm.bias.requires_grad_(False)

    def forward(self, x):
        return self.head(self.norm(self.rnn(self.table(x))[0]))


def rate(step):
    return 1e-2 * (1 - step / (4 * PART))


def by_torch(net, optimizer, x, labels, steps):
    losses = []
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[step]).flatten(0, 1), labels[step].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def moved(make, spec, split, x, labels):
    """The losses of a third of the steps in torch, a third in Cleave, and a third in torch."""
    net, (cluster, flags) = Net(), split
    optimizer = make([p for p in net.parameters() if p.requires_grad])
    losses = by_torch(net, optimizer, x, labels, range(PART))
    with tempfile.TemporaryDirectory() as folder:
        cleave.save_optimizer(net, optimizer, f"{folder}/state", steps=PART)
        recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "init": {"optimizer": f"{folder}/state"},
                  "optimizer": {**spec, "lr": {"kind": "linear", "peak": 1e-2, "total_steps": 4 * PART}}}
        plan = cleave.compile(net, recipe, cluster, f"{folder}/x.plan", example=(x[0],), check=False, **flags)
        assert plan.verify(), "verify"
        with cleave.Trainer(plan, snapshots=f"{folder}/s") as trainer:
            assert trainer.steps_done == PART
            losses += [trainer.step({"x": x[step], "labels": labels[step]}).loss for step in range(PART, 2 * PART)]
            trainer.save()
        net = Net()
        optimizer = make([p for p in net.parameters() if p.requires_grad])
        cleave.load_into(net, f"{folder}/s", optimizer=optimizer)
    return losses + by_torch(net, optimizer, x, labels, range(2 * PART, 3 * PART))


def refused():
    """State of another optimizer, of another model, of steps that differ."""
    net, told = Net(), []
    optimizer = O.AdamW(net.parameters(), 1e-2)
    x, labels = torch.randint(12, (3 * PART, BATCH, 5)), torch.randint(12, (3 * PART, BATCH, 5))
    by_torch(net, optimizer, x, labels, range(2))
    with tempfile.TemporaryDirectory() as folder:
        cleave.save_optimizer(net, optimizer, f"{folder}/state")
        for spec in {"kind": "sgd"}, {"kind": "adamw", "amsgrad": True}, {"kind": "adafactor"}:
            recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": spec, "init": {"optimizer": f"{folder}/state"}}
            try:
                cleave.compile(net, recipe, "cpu:1", f"{folder}/x.plan", example=(x[0],), check=False)
            except cleave.CleaveError as error:
                told.append(str(error))
        try:
            cleave.save_optimizer(net, optimizer, f"{folder}/other", steps=5)
        except cleave.CleaveError as error:
            told.append(str(error))
    wanted = ["which this optimizer does not keep", "has no max_exp_avg_sq/", "has no ", "has done 2 and 5 steps"]
    return len(told) == 4 and all(part in text for part, text in zip(wanted, told)) or print("refused:", told)


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    x, labels = torch.randint(12, (3 * PART, BATCH, 5)), torch.randint(12, (3 * PART, BATCH, 5))
    failed = 0
    for name, (make, spec, splits) in CASES.items():
        net = Net()
        stayed = by_torch(net, make([p for p in net.parameters() if p.requires_grad]), x, labels, range(3 * PART))
        for split in splits:
            losses = moved(make, spec, split, x, labels)
            off = max(abs(a - b) / b for a, b in zip(losses, stayed))
            if not off < 1e-5:
                failed += 1
                print(f"{name} on {split}: off by {off:.1e}: {np.array(losses)}, torch {np.array(stayed)}")
    failed += not refused()
    print(f"moving: {'as expected' if not failed else f'{failed} differ'}")


main()
