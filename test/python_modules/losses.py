"""Losses with weights beside PyTorch's: values and the steps that they lead to, on one device and split.

    losses.py [NAME...]
"""
import sys
import tempfile
import warnings

import cleave
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, CLASSES = 4, 8, 6
SPLITS = [("cpu:1", {}), ("cpu:2", {"mesh": "dp=2", "zero": 3}), ("cpu:2", {"mesh": "tp=2"}),
          ("cpu:1", {"microbatches": 4}), ("cpu:2", {"mesh": "pp=2", "microbatches": 2})]
WEIGHTS = [1.0, 0.5, 2.0, 0.0, 3.0, 1.5]


class Net(nn.Module):
    def __init__(self, last=None):
        super().__init__()
        self.fc, self.head, self.last = nn.Linear(8, 16), nn.Linear(16, CLASSES), last or nn.Identity()

    def forward(self, x):
        return self.last(self.head(torch.tanh(self.fc(x))))


def numbers(batch, random):
    labels = random.integers(0, CLASSES, batch)
    labels[::5] = -100
    return labels


def classes(batch, random):
    return random.integers(0, CLASSES, batch)


def shares(batch, random):
    drawn = random.random((batch, CLASSES)).astype(np.float32)
    drawn[:, 2] = 0
    return drawn / drawn.sum(1, keepdims=True)


def flags(batch, random):
    return random.integers(0, 2, (batch, CLASSES)).astype(np.float32)


def z_loss(x, t):
    return F.cross_entropy(x, t) + 0.01 * x.logsumexp(-1)[t != -100].square().mean()


W, SOFT, LOG = torch.tensor(WEIGHTS), {"labels": {"name": "labels", "dtype": "float32"}}, nn.LogSoftmax(-1)
# name: (loss of the recipe, by torch, labels, last layer)
CASES = {
    "weight": ({"kind": "softmax_cross_entropy", "weight": WEIGHTS}, lambda x, t: F.cross_entropy(x, t, W), numbers, None),
    "weight_all_count": ({"kind": "softmax_cross_entropy", "weight": WEIGHTS, "ignore_index": None},
                         lambda x, t: F.cross_entropy(x, t, W), classes, None),
    "weight_smoothed": ({"kind": "softmax_cross_entropy", "weight": WEIGHTS, "label_smoothing": 0.2},
                        lambda x, t: F.cross_entropy(x, t, W, label_smoothing=0.2), numbers, None),
    "smoothed": ({"kind": "softmax_cross_entropy", "label_smoothing": 0.2},
                 lambda x, t: F.cross_entropy(x, t, label_smoothing=0.2), numbers, None),
    "weight_soft": ({"kind": "softmax_cross_entropy", "weight": WEIGHTS, **SOFT}, lambda x, t: F.cross_entropy(x, t, W), shares, None),
    "nll": ({"kind": "nll", "weight": WEIGHTS}, lambda x, t: F.nll_loss(x, t, W), numbers, LOG),
    "pos_weight": ({"kind": "bce_with_logits", "pos_weight": WEIGHTS},
                   lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=W), flags, None),
    "pos_weight_one": ({"kind": "bce_with_logits", "pos_weight": 3.0},
                       lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(3.0)), flags, None),
    "z_loss": ({"kind": "softmax_cross_entropy", "z_loss": 0.01}, z_loss, numbers, None),
    "kl_div": ({"kind": "kl_div"}, lambda x, t: F.kl_div(x, t), shares, LOG),
    "kl_div_batchmean": ({"kind": "kl_div", "reduction": "batchmean"}, lambda x, t: F.kl_div(x, t, reduction="batchmean"), shares, LOG),
}


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    random, start, failed = np.random.default_rng(1), Net().state_dict(), 0
    inputs = [torch.randn(BATCH, 8) for _ in range(STEPS)]
    for name in sys.argv[1:] or CASES:
        loss, by_torch, labels, last = CASES[name]
        batches = [(x, labels(BATCH, random)) for x in inputs]
        net = Net(last)
        net.load_state_dict(start)
        optimizer, losses = torch.optim.SGD(net.parameters(), 0.5), []
        for x, t in batches:
            value = by_torch(net(x), torch.from_numpy(t))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            losses.append(value.item())
        recipe = {"dims": {"batch": BATCH}, "loss": loss, "optimizer": {"kind": "sgd", "lr": 0.5}}
        folder = tempfile.TemporaryDirectory()
        model = Net(last)  # with the import check, then its file
        model.load_state_dict(start)
        for cluster, split in SPLITS:
            plan = cleave.compile(model, recipe, cluster, f"{folder.name}/x.plan", example=(inputs[0],), **split)
            model = f"{folder.name}/x.onnx"
            with cleave.Trainer(plan) as trainer:
                at = next(key for key in trainer.inputs if key != "labels")
                told = [trainer.step({at: x.numpy(), "labels": t}).loss for x, t in batches]
            if max(abs(a - b) / abs(b) for a, b in zip(told, losses)) > 2e-5:
                failed += 1
                print(f"{name} on {cluster} {split}: {told}, torch {losses}")
    print(f"losses: {'as expected' if not failed else f'{failed} differ'}")


main()
