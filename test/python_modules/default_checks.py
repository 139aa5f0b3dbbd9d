"""Modules that compile with the default check and train as in PyTorch: one step's loss and weights are PyTorch's."""
import sys
import tempfile
import warnings

import cleave
import torch
from refused import refused
from torch import nn
from torch.nn import functional as F

BATCH, LR = 8, 0.1
CROSS_ENTROPY = {"kind": "softmax_cross_entropy"}


class Unused(nn.Module):
    """A layer, a parameter and a table that forward does not read, as FNet's and Wav2Vec2's."""

    def __init__(self):
        super().__init__()
        self.fc, self.spare, self.scale = nn.Linear(8, 5), nn.Linear(5, 3), nn.Parameter(torch.tensor(2.0))
        self.register_buffer("table", torch.arange(6))

    def forward(self, x):
        return self.fc(x)


class Counters(nn.Module):
    """Buffers that forward changes and does not read: they keep their numbers."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 5)
        self.register_buffer("calls", torch.tensor(3))
        self.register_buffer("seen", torch.full((3,), 2.0))

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        return self.fc(x)


class Buckets(nn.Module):
    """A detach() before numbers of buckets, which have no gradient, and one of the input."""

    def __init__(self):
        super().__init__()
        self.fc, self.embed, self.head = nn.Linear(8, 8), nn.Embedding(5, 8), nn.Linear(8, 5)
        self.register_buffer("bounds", torch.tensor([-1.0, 0.0, 0.5, 1.0]))

    def forward(self, x):
        y = self.fc(x)
        return self.head(y + x.detach() + self.embed(torch.bucketize(y.detach().mean(-1), self.bounds)))


class Detached(nn.Module):
    """A detach() that ends a gradient."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        y = self.fc(x)
        return self.head(y * y.detach())


class Frames(nn.Module):
    """Log-probabilities [steps, batch, classes]."""

    def __init__(self, steps):
        super().__init__()
        self.fc, self.steps = nn.Linear(8, steps * 6), steps

    def forward(self, x):
        return self.fc(x).reshape(-1, self.steps, 6).log_softmax(-1).transpose(0, 1)


def ctc(blank):
    recipe = {"kind": "ctc", "labels": {"name": "labels", "shape": ["batch", "4"]}, "blank": blank}
    return recipe, lambda out, batch: F.ctc_loss(out, batch["labels"], batch["input_lengths"], batch["target_lengths"], blank)


def cross_entropy(out, batch):
    return F.cross_entropy(out, batch["labels"])


def classes():
    return {"labels": torch.randint(0, 5, (BATCH,))}


def targets(blank, steps):
    labels = torch.randint(0, 5, (BATCH, 4))
    return {"labels": labels + (labels >= blank), "input_lengths": torch.full((BATCH,), steps),
            "target_lengths": torch.randint(1, 3, (BATCH,))}


# name: (module, the recipe's loss, PyTorch's, labels)
MODULES = {
    "unused": (Unused, CROSS_ENTROPY, cross_entropy, classes),
    "counters": (Counters, CROSS_ENTROPY, cross_entropy, classes),
    "ctc": (lambda: Frames(6), *ctc(0), lambda: targets(0, 6)),
    "ctc, last blank": (lambda: Frames(6), *ctc(5), lambda: targets(5, 6)),
    "ctc, few steps": (lambda: Frames(3), *ctc(0), lambda: targets(0, 3)),
}


def step(build, loss, torch_loss, labels, exporter=None):
    torch.manual_seed(0)
    module, x = build(), torch.randn(BATCH, 8)
    batch = {"x": x, **labels()}
    recipe = {"dims": {"batch": BATCH}, "loss": loss, "optimizer": {"kind": "sgd", "lr": LR}}
    with tempfile.TemporaryDirectory() as folder:
        if exporter:
            cleave.export(module, (x,), f"{folder}/m.onnx", exporter=exporter)
            cleave.check_import(module, f"{folder}/m.onnx", recipe=recipe, example=(x,))
            plan = cleave.compile(f"{folder}/m.onnx", recipe, "cpu:1")
        else:
            plan = cleave.compile(module, recipe, "cpu:1", example=(x,))
        with cleave.Trainer(plan, snapshots=f"{folder}/snapshots") as trainer:
            found = trainer.step(batch).loss
            trainer.save()
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        want = torch_loss(module(x), batch)
        want.backward()
        expected = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        expected.update(before)
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                expected[name] -= LR * parameter.grad
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()
        cleave.load_into(module, f"{folder}/snapshots")
    assert abs(found - float(want.detach())) < 1e-5 * abs(float(want.detach())), (found, want)
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)


def sixteen_bits(dtype, exporter):
    """A module of 16 bits agrees with its file, and one with another weight does not."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5)).to(dtype)
    x, recipe = torch.randn(BATCH, 8).to(dtype), {"dims": {"batch": BATCH}, "loss": CROSS_ENTROPY}
    with tempfile.TemporaryDirectory() as folder:
        cleave.export(module, (x,), f"{folder}/m.onnx", exporter=exporter)
        checked = cleave.check_import(module, f"{folder}/m.onnx", recipe=recipe, example=(x,))
        assert checked.gradients == 6 and checked.worst_error < 8 * torch.finfo(dtype).eps, checked
        cleave.check_import(module, f"{folder}/m.onnx", recipe=recipe)
        module[2] = nn.SiLU()
        refused(lambda: cleave.check_import(module, f"{folder}/m.onnx", recipe=recipe, example=(x,)), "0.weight: gradient differs")
        plan = cleave.compile(f"{folder}/m.onnx", recipe, "cpu:1")
        with cleave.Trainer(plan) as trainer:
            labels, losses = classes()["labels"], []
            for inputs in (x, x.float(), x.float().numpy()):  # one set of numbers, without an update between
                losses.append(trainer.evaluate({"input": inputs, "labels": labels})["loss"])
            assert losses[0] == losses[1] == losses[2], losses


def main():
    warnings.filterwarnings("ignore")
    for name, case in MODULES.items():
        for exporter in (None, "torchscript"):
            try:
                step(*case, exporter)
            except Exception as error:
                raise AssertionError((name, exporter)) from error
    with tempfile.TemporaryDirectory() as folder:
        for module, lost in ((Buckets(), []), (Detached(), ["detach()"])):
            assert cleave.export(module, (torch.zeros(2, 8),), f"{folder}/m.onnx")["lost"] == lost, lost
    for dtype in (torch.bfloat16, torch.float16):
        for exporter in ("dynamo", "torchscript"):
            sixteen_bits(dtype, exporter)
    print("default checks: as expected")


if __name__ == "__main__":
    sys.exit(main())
