"""Dropout of channels, of whole samples and alpha dropout, whose masks exporters write as random numbers: `dropout: off` and
evaluation are those of torch in eval(), and what a step drops is zero or torch's scale. A random mask that is none is a doubt."""
import pathlib
import tempfile
import warnings

import cleave
import numpy as np
import torch
from refused import refused
from torch import nn
from torch.nn import functional as F

BATCH = 8
RECIPE = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.0}}


class DropPath(nn.Module):
    def forward(self, x):
        if not self.training:
            return x
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(0.75)
        return x * mask.div_(0.75)


class StochasticDepth(nn.Module):
    def forward(self, x):
        return x * (0.75 + torch.rand(x.shape[0], 1)).floor() / 0.75 if self.training else x


class MaskedFill(nn.Module):
    def forward(self, x):
        return x.masked_fill(torch.rand_like(x) < 0.25, 0.0) / 0.75 if self.training else x


class Unscaled(nn.Module):
    def forward(self, x):
        return x.masked_fill(torch.rand_like(x) < 0.25, 0.0) if self.training else x


def dense(drop):
    return nn.Sequential(nn.Linear(6, 16), drop, nn.Linear(16, 5))


def channels(convolution, drop, width):
    return nn.Sequential(convolution(3, 8, 3), nn.ReLU(), drop, nn.Flatten(), nn.Linear(width, 5))


def cases():
    return {
        "Dropout": (dense(nn.Dropout(0.25)), (6,)),
        "Dropout1d": (channels(nn.Conv1d, nn.Dropout1d(0.25), 48), (3, 8)),
        "Dropout2d": (channels(nn.Conv2d, nn.Dropout2d(0.25), 32), (3, 4, 4)),
        "Dropout3d": (channels(nn.Conv3d, nn.Dropout3d(0.25), 64), (3, 4, 4, 4)),
        "FeatureAlphaDropout": (channels(nn.Conv2d, nn.FeatureAlphaDropout(0.25), 32), (3, 4, 4)),
        "AlphaDropout": (dense(nn.AlphaDropout(0.25)), (6,)),
        "DropPath": (dense(DropPath()), (6,)),
        "StochasticDepth": (dense(StochasticDepth()), (6,)),
        "MaskedFill": (dense(MaskedFill()), (6,)),
    }


def exports(module, shape, folder):
    """The module itself (cleave.export refuses alpha dropout and torch.rand), and files of plain torch.onnx.export."""
    if not any(isinstance(part, (nn.AlphaDropout, nn.FeatureAlphaDropout, StochasticDepth, MaskedFill)) for part in module):
        yield "module", module
    for optimize in (False, True):
        path = folder / f"optimize-{optimize}.onnx"
        program = torch.onnx.export(module, (torch.zeros(2, *shape),), dynamo=True, optimize=optimize, verbose=False,
                                    dynamic_shapes=({0: torch.export.Dim("batch")},))
        program.save(path, external_data=True)
        yield path.stem, str(path)


def losses(model, recipe, shape, inputs, labels, **options):
    if not isinstance(model, str):
        options["example"] = (torch.zeros(2, *shape),)
    plan = cleave.compile(model, recipe, **{"cluster": "cpu:1", **options})
    with cleave.Trainer(plan) as trainer:
        batch = dict(zip(trainer.inputs, (inputs, labels)))
        return [trainer.step(batch).loss for _ in range(64)], trainer.evaluate(batch)["loss"]


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as made:
        for name, (module, shape) in cases().items():
            x, labels = torch.randn(BATCH, *shape), torch.randint(5, (BATCH,))
            wanted = F.cross_entropy(module.eval()(x), labels).item()
            module.train()
            of_torch = np.mean([F.cross_entropy(module(x), labels).item() for _ in range(400)])
            folder = pathlib.Path(made) / name
            folder.mkdir()
            for how, model in exports(module, shape, folder):
                dropped, evaluated = losses(model, RECIPE, shape, x, labels, accept_doubts=True)
                assert abs(evaluated - wanted) < 1e-5, (name, how, evaluated, wanted)
                assert len(set(dropped)) > 8, (name, how, dropped)
                assert abs(np.mean(dropped) - of_torch) < 0.15 * of_torch, (name, how, np.mean(dropped), of_torch)
                kept, evaluated = losses(model, {**RECIPE, "dropout": "off"}, shape, x, labels, accept_doubts=True)
                assert max(abs(loss - wanted) for loss in kept + [evaluated]) < 1e-5, (name, how, kept, wanted)
        *_, (_, model) = exports(dense(Unscaled()).train(), (6,), pathlib.Path(made))
        refused(lambda: cleave.compile(model, RECIPE, cluster="cpu:1"), "a random mask that is no dropout")
    print("drawn masks: as expected")


if __name__ == "__main__":
    main()
