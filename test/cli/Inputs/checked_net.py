"""The module of import-check.test, with its files: checked_net.py FOLDER. `other` is no module of it."""
import pathlib
import sys

import cleave
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    """Tokens and a mask, whose shapes and numbers a check draws itself."""

    def __init__(self, scale):
        super().__init__()
        self.table, self.head, self.scale = nn.Embedding(20, 16), nn.Linear(16, 20), scale

    def forward(self, ids, mask):
        return self.head(torch.tanh(self.table(ids) * mask.unsqueeze(-1)) * self.scale)


def net():
    torch.manual_seed(0)
    return Net(0.5).train()


def other():
    torch.manual_seed(0)
    return Net(0.6).train()


def example():
    return torch.randint(0, 20, (4, 6)), torch.ones(4, 6)


def both():
    return net(), example()


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    cleave.export(net(), example(), folder / "net.onnx")
    ids, mask = (tensor.repeat(2, 1).numpy() for tensor in example())
    np.savez(folder / "batch.npz", ids=ids, mask=mask, labels=ids)
