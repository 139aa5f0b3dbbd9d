"""Checks an import: a module of PyTorch beside what Cleave computes from its file.

    result = cleave.check_import(module, "model.onnx", recipe={"loss": {"kind": "softmax_cross_entropy"}}, example=(x,))
    print(result)      # loss 2.3026 in both (relative 3e-08); 148 gradients agree, the worst is h.0.ln_1.bias by 2e-06

One step in training mode, PyTorch's in float64 where the module allows it: the loss, the gradient of every parameter, the
first numbers, the running statistics after the step, and the dropouts. An ImportMismatch names what differs.
"""
import dataclasses
import fnmatch

from cleave._tool import CleaveError


class ImportMismatch(CleaveError):
    """The file does not compute what the module computes. `differences`: a line each, the first tensor of forward first."""

    def __init__(self, differences):
        shown = differences[:12] + [f"and {len(differences) - 12} more"] * (len(differences) > 12)
        super().__init__("the file does not train as the module does:\n  " + "\n  ".join(shown), 1)
        self.differences = differences


@dataclasses.dataclass
class ImportCheck:
    """Figures of an import that agrees. `loss`: in both; the others are relative errors, and numbers of tensors."""
    loss: float
    loss_error: float
    gradients: int
    worst: str
    worst_error: float
    dropouts: int
    precision: str

    def __str__(self):
        worst = f", the worst is {self.worst} by {self.worst_error:.0e}" if self.worst else ""
        dropouts = f"; {self.dropouts} dropouts" if self.dropouts else ""
        return f"loss {self.loss:.5g} in both (relative {self.loss_error:.0e}); {self.gradients} gradients agree{worst}{dropouts}"


def check_import(module, model_or_plan, batch=None, recipe=None, *, example=None, accept=(), size=None):
    """Raises ImportMismatch where the file trains differently from the module; else the ImportCheck.

    model_or_plan: an .onnx file, a plan's path or a Plan; a plan has a recipe. batch: {input: array} with the labels, by the
    plan's input names; without one random numbers, `size` samples, like the example's: 4, or the recipe's `dims.batch` where it
    is smaller or forward takes another way for 4. example: the inputs of forward, which a batch may replace; without both, random
    numbers of the file's shapes. accept: globs of tensors whose differences are known.
    """
    try:
        import onnx  # noqa: F401
        import torch
    except ImportError as error:
        raise CleaveError(f"a check needs torch and onnx: {error}", 2) from None
    if not isinstance(module, torch.nn.Module):
        raise CleaveError(f"a torch.nn.Module is checked, not {type(module).__name__}", 2)
    if any(parameter.is_meta for parameter in module.parameters()):
        raise CleaveError("a check computes a step of the module, whose weights are on the meta device and have no numbers", 2)
    from cleave.check.checking import Checking
    return Checking(module, model_or_plan, recipe, example, size).run(batch, _matcher(accept))


def _matcher(globs):
    return lambda name: any(fnmatch.fnmatchcase(name, glob) for glob in globs)
