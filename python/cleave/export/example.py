"""The example inputs of an export: their batch, their names, the shapes that stay open.

`Example((torch.zeros(1, 20),))` has batch 2 (a batch of 1 would be taken for a constant), names ["x"] for
`forward(self, x)`, and dimension 0 of x is the dynamic one.
"""
import inspect

import numpy as np
import torch
from torch.utils import _pytree as pytree

from cleave._tool import CleaveError


def tensor_of(array, dtype=None):
    """A tensor of an array; of bf16 an array has the bits, as uint16."""
    is_bf16 = dtype == torch.bfloat16 and array.dtype == np.uint16 or array.dtype.name == "bfloat16"
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if is_bf16 else torch.from_numpy(array)


class Example:
    """args and kwargs of `forward`; `batch` is the size of the dimension that counts samples, None without one."""

    def __init__(self, example, kwargs=None):
        if isinstance(example, dict):
            self.args, self.kwargs = (), {**example, **(kwargs or {})}
        else:
            self.args = tuple(example) if isinstance(example, (tuple, list)) else () if example is None else (example,)
            self.kwargs = dict(kwargs or {})
        leaves = self.tensors()
        if not leaves:
            raise CleaveError("`example` has no tensor: a tuple of inputs, or a dictionary of keyword inputs", 2)
        self._map(lambda leaf: leaf.detach().clone())  # torch.export takes one tensor given twice for one input
        sized = [leaf for leaf in leaves if leaf.dim() > 0]
        self.batch = sized[0].shape[0] if sized else None
        self._batched = [leaf.dim() > 0 and leaf.shape[0] == self.batch for leaf in leaves]  # in the order of tensors()
        if self.batch == 1:
            self._map(lambda leaf: leaf.repeat(2, *[1] * (leaf.dim() - 1)) if self.is_batched(leaf) else leaf)
            self.batch = 2

    def _map(self, change):
        at = lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf  # noqa: E731
        self.args, self.kwargs = pytree.tree_map(at, self.args), pytree.tree_map(at, self.kwargs)

    def tensors(self):
        return [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]

    def is_batched(self, leaf):
        """Whether a tensor of the example counts samples: one of another size stays as it is when the batch is resized."""
        return any(own is leaf and batched for own, batched in zip(self.tensors(), self._batched))

    def bound(self, module):
        """The arguments by name of `forward`, in its order."""
        try:
            return dict(inspect.signature(module.forward).bind(*self.args, **self.kwargs).arguments)
        except TypeError as error:
            raise CleaveError(f"the example does not fit {type(module).__name__}.forward: {error}", 2) from None

    def names(self, module):
        """A name for each tensor: that of forward's parameter, with a number where one parameter has several."""
        kinds = {name: parameter.kind for name, parameter in inspect.signature(module.forward).parameters.items()}
        names = []
        for name, value in self.bound(module).items():
            if kinds[name] is inspect.Parameter.VAR_KEYWORD:
                inner = [(key, leaf) for key, part in value.items() for leaf in pytree.tree_leaves(part)]
            else:
                inner = [(name, leaf) for leaf in pytree.tree_leaves(value)]
            found = [key for key, leaf in inner if isinstance(leaf, torch.Tensor)]
            names += [key if found.count(key) == 1 else f"{key}_{at}" for at, key in enumerate(found)]
        return names

    def ordered(self, module):
        """The tensors in the order of forward's parameters, as exporters number them."""
        leaves = pytree.tree_leaves(list(self.bound(module).values()))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def dynamic_shapes(self, module, dimension):
        """For torch.export: `dimension` for dimension 0 of every tensor of the batch."""
        return pytree.tree_map(lambda leaf: {0: dimension} if self.is_batched(leaf) else None, self.bound(module))

    def mapped(self, change):
        """The example with `change` of each tensor."""
        other = Example.__new__(Example)
        other.args, other.kwargs, other.batch, other._batched = self.args, self.kwargs, self.batch, self._batched
        other._map(change)
        return other

    def resized(self, batch):
        """The same samples, repeated or cut to a batch of this size."""
        def at(leaf):
            return leaf[torch.arange(batch, device=leaf.device) % leaf.shape[0]] if self.is_batched(leaf) else leaf
        other = self.mapped(at)
        other.batch = batch
        return other

    def filled(self, module, arrays):
        """The example with these arrays, by the names of its tensors."""
        names = dict(zip(map(id, self.ordered(module)), self.names(module)))
        return self.mapped(lambda leaf: tensor_of(arrays[names[id(leaf)]], leaf.dtype) if names.get(id(leaf)) in arrays else leaf)
