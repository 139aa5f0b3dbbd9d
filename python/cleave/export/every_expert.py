"""Loops over the experts that some token chose, for exporters, which cannot write a loop that data end.

    for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():   # as Switch and NLLB of transformers write it
        rows = torch.where(mask[expert[0]])                         # none for an expert that no token chose
        ...

goes over all experts instead. That is the same if the body adds nothing for an expert without tokens, which
`is_neutral(module, example)` tells by running the module both ways.
"""
import torch
from torch.overrides import TorchFunctionMode

from cleave.export.forms import tensors_of, unchanged


class EveryExpert(TorchFunctionMode):
    """nonzero() of a vector gives all indices, as lists of one number, which a loop can go over."""

    def __init__(self):
        super().__init__()
        self.loops = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.nonzero, torch.nonzero) and len(args) == 1 and not kwargs and args[0].dim() == 1:
            self.loops += 1
            return [[at] for at in range(args[0].shape[0])]
        return function(*args, **(kwargs or {}))


def is_neutral(module, example):
    """Whether such loops are there, and outputs stay as they are: for the example, and for one sample, whose tokens leave out
    more experts."""
    found = 0
    for one in [example] if example.batch is None else [example, example.resized(1)]:
        mode = EveryExpert()
        with unchanged(module), torch.no_grad():
            state = torch.get_rng_state()
            before = tensors_of(module(*one.args, **one.kwargs))
            torch.set_rng_state(state)
            try:
                with mode:
                    after = tensors_of(module(*one.args, **one.kwargs))
            except Exception:  # what nonzero() gave was no loop's
                return False
        found += mode.loops
        if len(before) != len(after) or not all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for (_, a), (_, b) in zip(before, after)):
            return False
    return found > 0
