"""What cleave.export refuses by name, since no exported graph trains so; and what it alone keeps."""
import sys
import tempfile

import cleave
import torch
from refused import refused
from torch import nn


def hooked():
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].weight.register_hook(lambda gradient: 2 * gradient)
    return module


def backward_hooked():
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].register_full_backward_hook(lambda *_: None)
    return module


class NormTwice(nn.Module):
    """A BatchNorm that runs twice a step, as in a siamese net."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)) * self.body(2 * x + 1))


class Reads(nn.Module):
    """Python reads a number in `read`."""

    def __init__(self, read):
        super().__init__()
        self.fc, self.scale, self.read = nn.Linear(4, 4), nn.Parameter(torch.ones(())), read

    def forward(self, x):
        return self.fc(x) if self.read(self, x) else -self.fc(x)


def part_of(x):
    rows = torch.zeros(3)
    rows[0] = x.sum()
    return rows[0]


class NormOfTwoNames(NormTwice):
    """It, where the norm has two names."""

    def __init__(self):
        super().__init__()
        self.other = self.body[1]


class Steps(nn.Module):
    """A counter that forward reads."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x):
        self.step += 1
        return self.fc(x) / self.step


# What a trace would keep of the example, and what it may keep: sizes and constants.
READS = [lambda module, x: bool(x.sum() > 0), lambda module, x: x.mean().item() > 0, lambda module, x: x.tolist()[0][0] > 0,
         lambda module, x: x.numpy().max() > 0, lambda module, x: torch.equal(x, x + 1), lambda module, x: bool(module.scale > 0),
         lambda module, x: bool(part_of(x) > 0), lambda module, x: torch.allclose(x, x + 1),
         lambda module, x: len(torch.bincount(x.flatten().long())) > 1, lambda module, x: len(torch.nonzero(x)) > 1]
CONSTANTS = [lambda module, x: x.size(1) > 2, lambda module, x: torch.ones(3).sum() > 2]
RECIPE = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.1}}
ROWS = torch.zeros(2, 3, dtype=torch.int64)
CASES = [(hooked, torch.zeros(2, 4), "0.weight: has a gradient hook"),
         (backward_hooked, torch.zeros(2, 4), "0: has a backward hook"),
         (lambda: nn.Sequential(nn.Embedding(5, 4, max_norm=1.0)), ROWS, "0: max_norm"),
         (lambda: nn.Sequential(nn.Embedding(5, 4, scale_grad_by_freq=True)), ROWS, "0: max_norm and scale_grad_by_freq"),
         (lambda: nn.Sequential(nn.BatchNorm1d(4, momentum=None)), torch.zeros(2, 4), "0: momentum=None")]


def main():
    failed = 0
    for build, example, expected in CASES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                cleave.export(build(), example, f"{folder}/m.onnx")
                told = "exported"
            except cleave.CleaveError as error:
                told = str(error)
        if expected not in told:
            failed += 1
            print(f"expected {expected!r}: {told}")
    for exporter in ("dynamo", "torchscript"):
        with tempfile.TemporaryDirectory() as folder:
            refused(lambda: cleave.export(Steps(), torch.ones(2, 4), f"{folder}/m.onnx", exporter=exporter),
                    "step: forward changes this buffer and reads it again")
    for read in READS + CONSTANTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                told = cleave.export(Reads(read), torch.ones(2, 4), f"{folder}/m.onnx", exporter="torchscript")["exporter"]
            except cleave.CleaveError as error:
                told = str(error)
        line = f"{__file__}:{read.__code__.co_firstlineno}: `"
        if (line in told and "reads numbers of data" in told) != (read in READS) or read in CONSTANTS and "torchscript" not in told:
            failed += 1
            print(f"read in line {line}: {told}")
    with tempfile.TemporaryDirectory() as folder:
        for layer, shape in ((nn.Linear(8, 16), (2, 8)), (nn.Conv1d(8, 16, 3), (2, 8, 3))):
            for changed in (lambda part: part, nn.utils.parametrizations.weight_norm):  # weight_norm is folded, without its name
                module = nn.Sequential(changed(layer), nn.Flatten(), nn.Linear(16, 5))
                torch.onnx.export(module, (torch.zeros(shape),), f"{folder}/m.onnx", dynamo=False, opset_version=17,
                                  dynamic_axes={"x": {0: "batch"}}, input_names=["x"])
                call = lambda: cleave.compile(f"{folder}/m.onnx", RECIPE, "cpu:1")  # noqa: E731
                if changed is nn.utils.parametrizations.weight_norm:
                    refused(call, "'onnx::", "parameters that train as what the exporter computed from them")
                else:
                    call()
    torch.manual_seed(0)
    for norm in (NormTwice(), NormOfTwoNames()):
        cleave.compile(norm, RECIPE, "cpu:1", example=torch.randn(8, 8))  # compares gradients and statistics with the module's
    print(f"refusals: {'as expected' if not failed else f'{failed} differ'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
