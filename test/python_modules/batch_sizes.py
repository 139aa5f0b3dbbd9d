"""Modules that compute differently for some batch sizes: a step has PyTorch's loss for the recipe's batch, or is refused."""
import sys
import tempfile
import warnings

import cleave
import torch
from cleave.export.batch_sizes import has_batch, worded
from refused import refused
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.fc, self.compute = nn.Linear(8, 5), compute

    def forward(self, x):
        return self.compute(self.fc, x)


def times(condition):
    return lambda fc, x: fc(x) * (3 if condition(x) else 1)


# name: (the recipe's batch, forward)
FORWARDS = {
    "one size": (8, times(lambda x: x.shape[0] == 8)),
    "odd sizes": (7, times(lambda x: x.shape[0] % 2)),
    "more than 4": (8, times(lambda x: x.shape[0] > 4)),
    "at most 4": (3, times(lambda x: x.shape[0] <= 4)),
    "some sizes": (16, times(lambda x: x.shape[0] in (8, 16))),
    "as many numbers": (8, times(lambda x: x.numel() == 64)),
    "an int": (8, times(lambda x: int(x.shape[0]) == 8)),
    "len": (8, times(lambda x: len(x) == 8)),
    "a loop": (8, lambda fc, x: torch.stack([fc(x[at]) for at in range(x.shape[0])])),
    "pairs": (8, lambda fc, x: fc(x.view(-1, 2, 8)).view(-1, 5)),
}
# Where the exported graph has not the way of the size.
REFUSED = {
    "one": (1, times(lambda x: x.shape[0] == 1)),
    "a table": (8, times(lambda x: {8: 1}.get(x.shape[0]))),
}


def recipe(batch, **more):
    return {"dims": {"batch": batch}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.1}, **more}


def losses(batch, compute, example):
    """(PyTorch's loss, Cleave's)."""
    torch.manual_seed(0)
    module, x, labels = Net(compute), torch.randn(batch, 8), torch.randint(0, 5, (batch,))
    want = float(F.cross_entropy(module(x), labels).detach())
    with cleave.Trainer(cleave.compile(module, recipe(batch), "cpu:1", example=(torch.zeros(example, 8),))) as trainer:
        return want, trainer.step({"x": x, "labels": labels}).loss


def exported(compute, **options):
    with tempfile.TemporaryDirectory() as folder:
        return cleave.export(Net(compute), (torch.zeros(2, 8),), f"{folder}/m.onnx", **options).get("batches")


def main():
    warnings.filterwarnings("ignore")
    for name, (batch, compute) in FORWARDS.items():
        for example in (2, batch):
            want, loss = losses(batch, compute, example)
            assert abs(loss - want) < 1e-5 * want, (name, example, loss, want)
    for name, (batch, compute) in REFUSED.items():
        refused(lambda: losses(batch, compute, 2), "does not train as the module does")
    ramp = recipe(8, ramp=[{"until": 2, "batch": 4}])
    refused(lambda: cleave.compile(Net(FORWARDS["more than 4"][1]), ramp, "cpu:1", example=(torch.zeros(2, 8),)),
            "another way for a batch of 4 than for one of 8", "batches of 5 and more")

    assert exported(lambda fc, x: fc(x)) is None
    assert exported(FORWARDS["one size"][1]) == [[1, 7, 1], [9, None, 1]]
    assert exported(FORWARDS["odd sizes"][1]) == [[2, None, 2]]
    assert exported(FORWARDS["odd sizes"][1], batch=7) == [[1, None, 2]]
    assert exported(times(lambda x: x.shape[0] > 100_000)) == [[1, 100_000, 1]]
    assert exported(FORWARDS["a loop"][1], batch=8) == [[8, 8, 1]]
    assert worded([[1, 7, 1], [10, None, 2]]) == "1 to 7, 10, 12, 14 and so on"
    assert [size for size in range(12) if has_batch([[1, 3, 1], [6, None, 2]], size)] == [1, 2, 3, 6, 8, 10]
    print("batch sizes: as expected")


if __name__ == "__main__":
    sys.exit(main())
