"""Trains a module by PyTorch and by Cleave on the same batches, from two exports, and brings the weights back.

    row = beside_torch(module, example, {"kind": "softmax_cross_entropy"})
    row.stated      # Verdict("equal", "losses 3e-07 outputs 2e-06"): through cleave.compile, which checks its import
    row.default     # Verdict("doubt", "('fc1.bias', ...)"): from the file of a default torch.onnx.export

Other verdicts are "refused", with the message, and "DIFFERS". `losses` and `outputs` are the largest relative differences of
ten losses, and of the outputs with the weights from Cleave.
"""
import collections
import copy
import pathlib
import re
import tempfile

import cleave
import numpy as np
import torch
from cleave.check.losses import loss_of
from cleave.check.random_batch import random_inputs, random_labels
from cleave.check.torch_side import TorchSide
from cleave.export.example import Example
from cleave.export.forms import tensors_of
from cleave.export.making import first_line
from cleave.export.randomness import RandomDraws
from default_export import default_export

Verdict = collections.namedtuple("Verdict", "kind told")
Row = collections.namedtuple("Row", "stated default")
ADAMW = {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.1, "eps": 1e-6}
SGD = {"kind": "sgd", "lr": 1e-4, "momentum": 0.9}  # where AdamW parts PyTorch in float32 from itself in float64
LOSSES, OUTPUTS = 1e-5, 2e-4  # of the outputs: Adam turns the rounding of vanishing gradients into steps
DOUBTS = "the file does not tell all that the numbers depend on"


class Training:
    """Ten steps by PyTorch: `batches` as Cleave's inputs take them, `losses`, and the trained `module`."""

    def __init__(self, module, inputs, loss, optimizer, steps=10):
        self.module, self.inputs, self.loss, self.steps = copy.deepcopy(module), inputs, loss, steps
        self.recipe = {"dims": {"batch": inputs.batch}, "loss": loss, "optimizer": optimizer, "dropout": "off"}
        self.batches, self.losses = [], []

    def run(self, kinds):
        """kinds: {input: (dtype, shape)} of a plan; what the module does not take is the labels."""
        optimizer = self.recipe["optimizer"]
        numbers = {key: value for key, value in optimizer.items() if key != "kind"}
        update = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer["kind"]](self.module.parameters(), **numbers)
        side, random = TorchSide(self.module), np.random.default_rng(7)
        for _ in range(self.steps):
            drawn = random_inputs(side, self.inputs, random)
            arrays = dict(zip(self.inputs.names(self.module), (leaf.numpy() for leaf in drawn.ordered(self.module))))
            with RandomDraws(self.module):
                outputs = tensors_of(self.module(*drawn.args, **drawn.kwargs))
            at = [name for name, _ in outputs].index(self.loss["output"]) if "output" in self.loss else 0
            labels = {name: random_labels(self.loss, name, dtype, shape, outputs[at][1], (shape or (1,))[-1], random)
                      for name, (dtype, shape) in kinds.items() if name not in arrays}
            target = next((torch.from_numpy(array) for array in labels.values()), None)
            value = loss_of(self.loss, outputs[at][1], target)
            update.zero_grad()
            value.backward()
            update.step()
            self.losses.append(value.item())
            self.batches.append({**arrays, **labels})

    def compared(self, plan, module, folder):
        """The Verdict of the same steps by Cleave, with its weights in a copy of `module`."""
        with cleave.Trainer(plan, snapshots=folder / "snapshots") as trainer:
            if not self.losses:
                self.run(trainer.inputs)
            losses = [trainer.step({name: batch[name] for name in trainer.inputs}).loss for batch in self.batches]
            trainer.save()
        back = copy.deepcopy(module)
        apart = relative(losses, self.losses)
        try:
            cleave.load_into(back, folder / "snapshots", strict=True)
        except RuntimeError as error:  # names that are not the module's
            return Verdict("equal" if apart <= LOSSES else "DIFFERS",
                           f"losses {apart:.0e}, but not loaded: {' '.join(str(error).split())[:160]}")
        outputs = self._outputs_apart(back)
        good = apart <= LOSSES and outputs <= OUTPUTS
        return Verdict("equal" if good else "DIFFERS", f"losses {apart:.0e} outputs {outputs:.0e}")

    def _outputs_apart(self, back):
        with torch.no_grad():
            pairs = zip(*(tensors_of(net.eval()(*self.inputs.args, **self.inputs.kwargs)) for net in (back, self.module)))
            return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-9)) for (_, a), (_, b) in pairs)


def beside_torch(module, example, loss, cluster="cpu:1", optimizer=ADAMW):
    """The Row of a module, which stays as it is."""
    inputs = Example(example)
    training = Training(module, inputs, loss, optimizer)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        stated = _stated(training, module, example, cluster, pathlib.Path(one))
        return Row(stated, _default(training, module, inputs, cluster, pathlib.Path(other)))


def _stated(training, module, example, cluster, folder):
    try:
        plan = cleave.compile(module, training.recipe, cluster, folder / "model.plan", example)
        return training.compared(plan, module, folder)
    except cleave.CleaveError as error:
        return Verdict("refused", str(error))


def _default(training, module, inputs, cluster, folder):
    path = folder / "default.onnx"
    try:
        default_export(module, inputs, path)
    except Exception as error:  # exporters raise what they like
        return Verdict("refused", f"by the exporter: {first_line(error)}")
    try:
        plan = cleave.compile(path, training.recipe, cluster, folder / "model.plan")
        return training.compared(plan, module, folder)
    except cleave.CleaveError as error:
        if DOUBTS not in str(error):
            return Verdict("refused", str(error))
        names = re.findall(r"'([^']+)'", str(error).partition(DOUBTS)[2])
        return Verdict("doubt", f"({names[0]!r}{', ...' * (len(names) > 1)})")


def relative(ours, theirs):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-9)))


def show(name, row):
    """Prints the row; whether it is as it must be: equal through cleave.compile, and never silently different."""
    print(f"{name:22} cleave.export: {' '.join(row.stated):40} torch.onnx.export: {' '.join(row.default)}", flush=True)
    return row.stated.kind == "equal" and row.default.kind != "DIFFERS"
