"""Lines of Python that read numbers of inputs or parameters, which a trace would keep as they are for the example.

    data_reads(module, example)     # ["net.py:12: `if x.sum() > 0:`"]

Sizes, and numbers that depend on constants and buffers alone, are no data.
"""
import linecache
import pathlib
import sys

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

ARRAYS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)  # no operator is called for these
LIBRARIES = (str(pathlib.Path(torch.__file__).parent), str(pathlib.Path(__file__).parents[1]))


def data_reads(module, example):
    storages = {}
    with torch.no_grad(), _Operators(storages) as operators, _Methods(storages) as methods:
        for tensor in [*module.parameters(), *example.tensors()]:
            _add(storages, tensor)
        module(*example.args, **example.kwargs)
    return list(dict.fromkeys(operators.lines + methods.lines))


def _tensors(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _add(storages, tensor):
    storage = tensor.untyped_storage()
    storages[storage._cdata] = storage  # kept, so that no other takes its address


def _depends(storages, tree):
    return any(tensor.untyped_storage()._cdata in storages for tensor in _tensors(tree))


def _reads(function, result):
    """Whether an operator gives Python a number, or a size, that depends on its operands."""
    numbers = any(isinstance(leaf, (bool, int, float, complex)) for leaf in pytree.tree_leaves(result))
    return numbers or torch.Tag.dynamic_output_shape in function.tags


def _line():
    """The innermost line outside of the libraries."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith(LIBRARIES):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return f"{file}:{line}: `{linecache.getline(file, line).strip()}`"


class _Operators(TorchDispatchMode):
    """Follows what depends on the storages; `lines`: where an operator gives Python a number of it."""

    def __init__(self, storages):
        super().__init__()
        self.storages, self.lines = storages, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if _depends(self.storages, (args, kwargs)):
            self.lines += [_line()] if _reads(function, result) else []
            for tensor in _tensors(result):
                _add(self.storages, tensor)
        return result


class _Methods(TorchFunctionMode):
    """`lines`: where a method of a tensor gives Python an array of it."""

    def __init__(self, storages):
        super().__init__()
        self.storages, self.lines = storages, []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in ARRAYS and _depends(self.storages, args):
            self.lines.append(_line())
        return function(*args, **(kwargs or {}))
