"""A training that moves from torch to Cleave and back in the middle, beside the one that stays in torch."""
import tempfile
import warnings

import cleave
import numpy as np
import torch
from safetensors.torch import save_file
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
WIDE = 32  # momenta of the gates' weights are then in 8 bits


def in_8_bits(parameters):
    """AdamW whose exp_avg is rounded to e4m3 with one scale for each row when a step is done."""
    def round_rows(*_):
        for state in optimizer.state.values():
            mean = state["exp_avg"]
            if mean.numel() >= 4096:
                scale = mean.abs().amax(-1, keepdim=True) / 448
                mean.copy_((mean / scale).to(torch.float8_e4m3fn).float() * scale)
    optimizer = O.AdamW(parameters, 1e-2)
    optimizer.register_step_post_hook(round_rows)
    return optimizer


class Net(nn.Module):
    """A tied table, a recurrent layer whose gates an exporter orders anew, transposed and frozen weights."""

    def __init__(self, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.rnn, self.norm = nn.Embedding(12, width), nn.LSTM(width, width, batch_first=True), nn.LayerNorm(width)
        self.head = nn.Linear(width, 12)
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


def moved(make, spec, split, x, labels, width):
    """The losses of a third of the steps in torch, a third in Cleave, and a third in torch."""
    net, (cluster, flags) = Net(width), split
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
        net = Net(width)
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
        save_file({"table.weight": net.table.weight.detach().to(torch.float8_e4m3fn)}, f"{folder}/8.safetensors")
        state = {"optimizer": f"{folder}/state"}
        for spec, init in ({"kind": "sgd"}, state), ({"kind": "adamw", "amsgrad": True}, state), ({"kind": "adafactor"}, state), (
                {"kind": "adamw"}, {"kind": "safetensors", "path": f"{folder}/8.safetensors", "missing": "keep"}):
            recipe = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": spec, "init": init}
            try:
                cleave.compile(net, recipe, "cpu:1", f"{folder}/x.plan", example=(x[0],), check=False)
            except cleave.CleaveError as error:
                told.append(str(error))
        try:
            cleave.save_optimizer(net, optimizer, f"{folder}/other", steps=5)
        except cleave.CleaveError as error:
            told.append(str(error))
    wanted = ["which this optimizer does not keep", "has no max_exp_avg_sq/", "has no ", "its scales are other tensors",
              "has done 2 and 5 steps"]
    return len(told) == 5 and all(part in text for part, text in zip(wanted, told)) or print("refused:", told)


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    x, labels = torch.randint(12, (3 * PART, BATCH, 5)), torch.randint(12, (3 * PART, BATCH, 5))
    failed = 0
    cases = [(*case, 16) for case in CASES.values()] + [(in_8_bits, {"kind": "adamw", "state_dtype": "fp8"}, [ONE, DP, TP, PP], WIDE)]
    for make, spec, splits, width in cases:
        net = Net(width)
        stayed = by_torch(net, make([p for p in net.parameters() if p.requires_grad]), x, labels, range(3 * PART))
        for split in splits:
            losses = moved(make, spec, split, x, labels, width)
            off = max(abs(a - b) / b for a, b in zip(losses, stayed))
            if not off < 1e-5:
                failed += 1
                print(f"{spec} on {split}: off by {off:.1e}: {np.array(losses)}, torch {np.array(stayed)}")
    failed += not refused()
    print(f"moving: {'as expected' if not failed else f'{failed} differ'}")


main()
