"""What the Python module is given by mistake: CleaveError says what is wrong, or the numbers are taken as they are."""
import sys
import tempfile
import warnings

import cleave
import numpy as np
import torch
from refused import refused
from torch import nn

RECIPE = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.1}}
X, LABELS = torch.randn(8, 8), torch.arange(8) % 5


def compiled(**changes):
    return cleave.compile(nn.Linear(8, 5), {**RECIPE, **changes}, "cpu:1", example=(X,))


def steps():
    with cleave.Trainer(compiled()) as trainer:
        step = lambda inputs: lambda: trainer.step(inputs)  # noqa: E731
        first = trainer.step({"input": X, "labels": LABELS}).loss
        refused(step((X, LABELS)), "a step takes a dictionary of arrays", "not tuple")
        refused(step({"input": X.clone().requires_grad_(), "labels": LABELS}), "'input' requires a gradient", "input.detach()")
        refused(step({"input": ([1, 2], [3]), "labels": LABELS}), "'input' is no array: tuple")
        refused(step({"input": X.to("meta"), "labels": LABELS}), "'input' is no array", "on the CPU")
        refused(step({"input": (X, X), "labels": LABELS}), "(2, 8, 8) here")
        assert abs(trainer.step({"input": X.bfloat16(), "labels": LABELS}).loss - first) < 0.2
        why = "step 3, command 'loss'", "the loss is not finite"
        refused(step({"input": X * float("nan"), "labels": LABELS}), *why)
        for _ in range(2):
            refused(step({"input": X, "labels": LABELS}), "the Trainer ended before: ", *why, "resume=True")


def recipes():
    for rate in (np.float32(0.1), np.float64(0.1), torch.tensor(0.1)):
        compiled(optimizer={"kind": "sgd", "lr": rate})
    compiled(dims={"batch": np.int64(8)})
    refused(lambda: compiled(optimizer={"kind": "sgd", "lr": object()}), "the recipe's optimizer.lr is a object")
    refused(lambda: compiled(optimizer={"kind": "sgd", "lr": np.ones(2)}), "'optimizer.lr' must be a number, is a list")
    refused(lambda: cleave.compile(nn.Linear(8, 5), [RECIPE], "cpu:1", example=(X,)), "a recipe is a path or a dictionary, not list")
    with tempfile.TemporaryDirectory() as folder:
        cleave.export(nn.Linear(8, 5), (X,), f"{folder}/m.onnx")
        missing, torn = f"{folder}/none.yaml", f"{folder}/torn.yaml"
        with open(torn, "w") as file:
            file.write("loss: [1\nb: }")
        for path, word in ((missing, "none.yaml"), (torn, "YAML")):
            refused(lambda: cleave.compile(nn.Linear(8, 5), path, "cpu:1", example=(X,)), word)
            refused(lambda: cleave.check_import(nn.Linear(8, 5), f"{folder}/m.onnx", recipe=path, example=(X,)), word)
    one = {**RECIPE, "dims": {"batch": 1}}
    refused(lambda: cleave.compile(nn.Sequential(nn.BatchNorm1d(8)), one, "cpu:1", example=(X,)),
            "the check's step in PyTorch, with a batch of 1, failed: ValueError: Expected more than 1 value per channel")


def optimizer_state():
    """That of Adafactor has no place in another optimizer."""
    module = nn.Linear(8, 5)
    plan = cleave.compile(module, {**RECIPE, "optimizer": {"kind": "adafactor", "lr": 0.1}}, "cpu:1", example=(X,))
    with tempfile.TemporaryDirectory() as folder:
        with cleave.Trainer(plan, snapshots=folder) as trainer:
            trainer.step({"input": X, "labels": LABELS})
            trainer.save()
        refused(lambda: cleave.load_into(module, folder, optimizer=torch.optim.SGD(module.parameters(), 0.1)),
                "the state of Adafactor cannot be exported")


def main():
    warnings.filterwarnings("ignore")
    steps()
    recipes()
    optimizer_state()
    print("wrong calls: as expected")


if __name__ == "__main__":
    sys.exit(main())
