"""Modules whose parameters have shapes and types, and no numbers.

    with parameters_on_meta():
        model = LlamaForCausalLM(config)      # 70 B parameters without memory; buffers have their numbers
    with fake_parameters(model):
        torch.export.export(model, ...)       # parameters say that they are on the CPU, so that they go with buffers
"""
import contextlib

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from cleave._tool import CleaveError
from cleave.export.statement import identity, named_tensors


def has_numbers(tensor):
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


@contextlib.contextmanager
def parameters_on_meta():
    """Parameters that are made within it are on the meta device."""
    made = nn.Parameter.__new__

    def on_meta(cls, data=None, requires_grad=True):
        return made(cls, None if data is None else data.detach().to("meta"), requires_grad)
    nn.Parameter.__new__ = staticmethod(on_meta)
    try:
        yield
    finally:
        nn.Parameter.__new__ = staticmethod(made)


@contextlib.contextmanager
def fake_parameters(module):
    """Within it a fake parameter is in the place of each parameter, and one fake in all places of a tied one."""
    mode, fakes = FakeTensorMode(allow_non_fake_inputs=True), {}
    places = [(part, key, parameter) for part in module.modules() for key, parameter in part._parameters.items()
              if parameter is not None]
    for _, _, parameter in places:
        if identity(parameter) not in fakes:
            device = "cpu" if parameter.is_meta else parameter.device
            with mode:
                empty = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype, device=device)
                fakes[identity(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    try:
        for part, key, parameter in places:
            setattr(part, key, fakes[identity(parameter)])
        yield
    finally:
        for part, key, parameter in places:
            setattr(part, key, parameter)


def refuse_meta(module, weights):
    """Refuses tensors on the meta device whose numbers the export needs: all with `weights`, else buffers."""
    for name, tensor in named_tensors(module).items():
        if tensor.is_meta and weights:
            raise CleaveError(f"{name}: is on the meta device, which has no numbers; weights=False exports the module without "
                              "its weights", 1)
        if tensor.is_meta and not isinstance(tensor, nn.Parameter):
            raise CleaveError(f"{name}: is a buffer on the meta device, and an export needs the numbers of buffers; build the "
                              "module in `with cleave.without_weights():`, which leaves them", 1)
