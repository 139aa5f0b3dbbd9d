"""What one architecture of the zoo is: a module, its inputs, its loss."""
import dataclasses
import typing

import numpy as np
import torch
from torch import nn

BATCH = 8
SAMPLES = 16  # two batches, in turn


@dataclasses.dataclass
class Case:
    name: str
    build: typing.Callable[[], nn.Module]
    inputs: typing.Callable  # (rng, samples) -> {input: array}, the sample first
    loss: dict  # as in the recipe
    labels: typing.Callable = None  # (rng, samples, inputs) -> array; None: the graph computes its loss
    train: bool = False  # train mode, with batch statistics where there is a BatchNorm
    batch_norm: str = None  # of the recipe
    perturb: bool = True  # off where the initial weights are the point
    optimize: bool = True  # of the dynamo exporter
    coupled: bool = False  # samples of a batch meet: one microbatch only
    fixed: bool = False  # exported for a fixed batch
    opset: int = None
    lr: float = 0.05
    trainable: list = None
    torchscript: dict = dataclasses.field(default_factory=dict)  # of the recipe, where that exporter tells less
    ties: str = None
    padding: bool = False  # keeps padding_idx
    known: dict = dataclasses.field(default_factory=dict)  # exporter -> why its file cannot train as PyTorch does


class Pick(nn.Module):
    """Calls a model by keywords and returns one of its outputs."""

    def __init__(self, model, names, pick):
        super().__init__()
        self.model, self.names, self.pick = model, names, pick

    def forward(self, a, b=None, c=None, d=None):
        given = dict(zip(self.names, (a, b, c, d)))
        out = self.model(**given)
        return self.pick(out) if callable(self.pick) else getattr(out, self.pick)


def perturb(module, seed=1):
    """Moves every parameter, and the statistics of BatchNorms, so that equal initial values hide nothing."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in (p for p in module.parameters() if p.requires_grad):  # others are tables of positions
            p.add_(0.03 * torch.randn(p.shape, generator=g))
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.add_(0.1 * torch.randn(b.shape, generator=g))
            if name.endswith("running_var"):
                b.mul_(1 + 0.2 * torch.rand(b.shape, generator=g))


def module_of(case):
    torch.manual_seed(0)
    module = case.build()
    if case.perturb:
        perturb(module)
    for m in module.modules():
        if isinstance(m, nn.Embedding) and not case.padding:
            m.padding_idx = None  # ONNX knows none: the row of padding would train
    return module.train(case.train)


def loss_of(case, out, labels):
    import torch.nn.functional as F

    kind = case.loss["kind"]
    if kind == "output":
        return out
    if kind == "softmax_cross_entropy":
        axis = case.loss.get("axis", -1)
        return F.cross_entropy(out.movedim(axis, -1).flatten(0, -2), labels.flatten())
    if kind == "mse":
        return F.mse_loss(out, labels)
    if kind == "l1":
        return F.l1_loss(out, labels)
    if kind == "bce_with_logits":
        return F.binary_cross_entropy_with_logits(out, labels)
    raise ValueError(kind)


CE = {"kind": "softmax_cross_entropy"}
MSE = {"kind": "mse"}
BCE = {"kind": "bce_with_logits"}
OUT = {"kind": "output"}


def classes(k, *shape):
    return lambda rng, n, x: rng.integers(0, k, (n, *shape))


def normal(*shape):
    return lambda rng, n, x: rng.standard_normal((n, *shape)).astype(np.float32)


def classes_unpadded(k, *shape):
    """Classes of tokens, -100 where there is padding."""
    return lambda rng, n, x: np.where(x["attention_mask"] == 0, -100, rng.integers(0, k, (n, *shape)))


def coin(*shape):
    return lambda rng, n, x: rng.integers(0, 2, (n, *shape)).astype(np.float32)


def image(size=32, channels=3, name="pixel_values"):
    return lambda rng, n: {name: rng.standard_normal((n, channels, size, size)).astype(np.float32)}


def floats(*shape, name="x"):
    return lambda rng, n: {name: rng.standard_normal((n, *shape)).astype(np.float32)}


def tokens(vocab, length, masked=None, low=3, name="input_ids"):
    """Token numbers; `masked` is "left" or "right" for a mask with padding on that side."""

    def make(rng, n):
        ids = rng.integers(low, vocab, (n, length))
        out = {name: ids}
        if masked:
            pad = rng.integers(0, length // 2, n)
            at = np.arange(length)[None, :]
            keep = at >= pad[:, None] if masked == "left" else at < length - pad[:, None]
            ids[~keep] = 1
            out["attention_mask"] = keep.astype(np.int64)
        return out

    return make


def next_tokens(rng, n, x):
    """Labels of a language model: the next token, -100 where there is none or where it is padding."""
    ids = x["input_ids"]
    labels = np.concatenate([ids[:, 1:], np.full((n, 1), -100)], 1)
    if "attention_mask" in x:
        keep = x["attention_mask"]
        labels[keep == 0] = -100
    return labels
