"""Models that compute with the number of samples in the batch: the loss is torch's, in one microbatch, and a note names the node.
Where the batch is only an extent, or divides a sum over samples, microbatches are as ever. A Loop over samples is written out as
often as a microbatch has samples."""
import copy
import warnings

import cleave
import torch
from torch import nn
from torch.nn import functional as F

BATCH = 8
RECIPE = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.1}}


class Head(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.l, self.of = nn.Linear(6, 5), of

    def forward(self, *inputs):
        return self.of(self.l, *inputs)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.h = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)]), nn.Linear(64, 5)

    def forward(self, x):
        for l in self.l:
            x = x + l(x).relu() * x.shape[0] / 64
        return self.h(x)


LOGITS = {  # name: (of the layer and its input, whether it computes with the number of samples)
    "times": (lambda l, x: l(x) * x.shape[0], True),
    "elements": (lambda l, x: l(x) * (x.numel() / 64), True),
    "table": (lambda l, x: l(x) * torch.linspace(0, 1, x.shape[0])[:, None], True),
    "rows": (lambda l, x: l(x) + l.weight.sum() * torch.ones(x.shape[0]).sum(), True),
    "places": (lambda l, x: l(x) + l.weight.flatten()[:x.shape[0], None], True),
    "zeros": (lambda l, x: l(x) + torch.zeros(x.shape[0], 5), False),
    "column": (lambda l, x: torch.cat([l(x), torch.ones(x.shape[0], 1)], 1), False),
    "slices": (lambda l, x: torch.cat([l(x)[:, 2:], l(x)[:, :2]], 1), False),
    "flat": (lambda l, x: l(x).reshape(x.shape[0] * 5).reshape(x.shape[0], 5), False),
}
SUMS = {  # losses that the graph computes
    "penalty": (lambda l, x, y: ((l(x) - y) ** 2).sum() + 0.1 * x.shape[0] * (l.weight**2).sum(), True),
    "constant": (lambda l, x, y: ((l(x) - y) ** 2).sum() / x.shape[0] + x.shape[0], True),
    "mean": (lambda l, x, y: ((l(x) - y) ** 2).sum() / x.shape[0], False),
    "mse": (lambda l, x, y: F.mse_loss(l(x), y), False),
}


def losses(module, recipe, inputs, wanted, isUsed, **split):
    example = tuple(torch.zeros(2, *value.shape[1:]) for value in inputs if value.is_floating_point())
    plan = cleave.compile(module, recipe, example=example, **split)
    report = plan.report().data
    told = any("computes with the number of samples" in note for note in report["notes"])
    assert told == isUsed, report["notes"]
    if isUsed and "microbatches" not in split:
        assert report["microbatches"] == 1, report["microbatches"]
    with cleave.Trainer(plan) as trainer:
        got = trainer.step(dict(zip(trainer.inputs, inputs))).loss
    isSame = abs(got - wanted) < 1e-5 * max(1, abs(wanted))
    assert isSame or (isUsed and split.get("microbatches", 1) > 1), (got, wanted)
    if isUsed and split.get("microbatches", 1) > 1:
        assert any("can meet at" in note for note in report["notes"]), report["notes"]


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    x, y, labels = torch.randn(BATCH, 6), torch.randn(BATCH, 5), torch.randint(5, (BATCH,))
    for of, isUsed in LOGITS.values():
        module = Head(of)
        wanted = F.cross_entropy(module(x), labels).item()
        for split in ({"cluster": "cpu:1"}, {"cluster": "cpu:1", "microbatches": 2}):
            losses(module, RECIPE, (x, labels), wanted, isUsed, **split)
    for of, isUsed in SUMS.values():
        module = Head(of)
        for split in ({"cluster": "cpu:1"}, {"cluster": "cpu:1", "microbatches": 2}, {"cluster": "cpu:2", "mesh": "dp=2"}):
            losses(module, {**RECIPE, "loss": {"kind": "output"}}, (x, y), module(x, y).item(), isUsed, **split)
    blocks, x, labels = Blocks(), torch.randn(64, 64), torch.randint(5, (64,))
    losses(blocks, {**RECIPE, "dims": {"batch": 64}}, (x, labels), F.cross_entropy(blocks(x), labels).item(), True,
           cluster="cpu:4", mesh="pp=4")
    ids, labels = torch.randint(20, (BATCH, 4)), torch.randint(5, (BATCH,))
    for mode in ("mean", "sum", "max"):
        module = nn.Sequential(nn.EmbeddingBag(20, 8, mode=mode), nn.Linear(8, 8), nn.Linear(8, 5))
        wanted = F.cross_entropy(module(ids), labels).item()
        for split in [{"cluster": "cpu:1", "microbatches": count} for count in (1, 2, 4, 8)] + [
                {"cluster": "cpu:2", "mesh": "pp=2", "microbatches": 2}, {"cluster": "cpu:2", "mesh": "dp=2", "microbatches": 4}]:
            plan = cleave.compile(module, RECIPE, example=(torch.zeros(2, 4, dtype=torch.long),), **split)
            with cleave.Trainer(plan) as trainer:
                got = [trainer.step(dict(zip(trainer.inputs, (ids, labels)))).loss for _ in range(2)]
            trained = copy.deepcopy(module)
            F.cross_entropy(trained(ids), labels).backward()
            torch.optim.SGD(trained.parameters(), 0.1).step()
            assert abs(got[0] - wanted) < 1e-5 and abs(got[1] - F.cross_entropy(trained(ids), labels).item()) < 1e-5, (mode, split)
    print("batch sizes: as expected")


if __name__ == "__main__":
    main()
