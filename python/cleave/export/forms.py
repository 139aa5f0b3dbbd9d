"""What is changed in a module while it is exported or run, and put back afterwards.

    with unchanged(module), training(module), exportable(module, remarks):
        ...  # buffers, modes, random numbers and configurations are as before when this ends
"""
import contextlib
import dataclasses
import functools

import torch
from torch import nn


@contextlib.contextmanager
def unchanged(module):
    """Buffers (running statistics), gradients, modes and the state of random numbers stay as they are."""
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    random = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(random)
        for part, mode in modes:
            part.training = mode
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def train(module, remarks):
    """Training mode, if the module is in eval; parts that are in eval inside a training module stay (a frozen BatchNorm)."""
    if not module.training:
        module.train()
        remarks.append("the module is in eval(): it was exported in train(), and is in eval() again")


def _configurations(module):
    """The configurations of Hugging Face's models in this module, with those inside them."""
    found = {}

    def add(config):
        if hasattr(config, "to_dict") and id(config) not in found:
            found[id(config)] = config
            for value in vars(config).values():
                add(value)
    for part in module.modules():
        add(getattr(part, "config", None))
    return list(found.values())


@contextlib.contextmanager
def _casts_of_nothing():
    """Module.to(dtype) leaves a module of that type alone: routers of Hugging Face call it in forward, where a trace cannot
    exchange parameters."""
    cast = nn.Module.to

    def to(module, *args, **kwargs):
        is_done = len(args) == 1 and not kwargs and isinstance(args[0], torch.dtype) and all(
            tensor.dtype == args[0] for tensor in (*module.parameters(), *module.buffers()))
        return module if is_done else cast(module, *args, **kwargs)
    nn.Module.to = to
    try:
        yield
    finally:
        nn.Module.to = cast


@contextlib.contextmanager
def exportable(module, remarks):
    """Chooses, where a model of Hugging Face has several kernels for one thing, those that exporters can write."""
    configurations = _configurations(module)
    saved = [(config, dict(vars(config))) for config in configurations]
    choices = {"_attn_implementation": ("attention", "eager", ("eager", "sdpa")),
               "_experts_implementation": ("experts", "batched_mm", ("batched_mm",))}
    has_experts = any(type(one).__name__.endswith("Experts") for one in module.modules())  # each configuration has the key
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        for config in configurations:
            for key, (what, choice, fine) in choices.items():
                before = getattr(config, key, None)
                if isinstance(before, str) and before not in fine:
                    setattr(config, key, choice)
                    remark = f"{what} was exported as {choice}: exporters do not write {before}"
                    is_news = remark not in remarks and (what != "experts" or has_experts)
                    remarks += [remark] if is_news else []
            if getattr(config, "use_cache", False) is True:
                config.use_cache = False
                remark = "exported with use_cache=False"
                remarks += [remark] if remark not in remarks else []
        with _casts_of_nothing():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for config, values in saved:
            vars(config).clear()
            vars(config).update(values)


def tensors_of(output):
    """The tensors of what a forward returns, by name where it has names: a tuple, a dictionary, a dataclass."""
    if isinstance(output, torch.Tensor):
        return [(None, output)]
    if dataclasses.is_dataclass(output) and not hasattr(output, "items"):
        output = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    if hasattr(output, "_asdict"):
        output = output._asdict()
    if hasattr(output, "items"):
        found = [(key, named) for key, value in output.items() for named in tensors_of(value)]
        counts = [key for key, _ in found]
        return [(str(key) if counts.count(key) == 1 else f"{key}_{at}", tensor) for at, (key, (_, tensor)) in enumerate(found)]
    if isinstance(output, (tuple, list)):
        return [named for value in output for named in tensors_of(value)]
    return []


@contextlib.contextmanager
def flat_outputs(module):
    """forward returns a tuple of tensors. Yields the list of their names, filled when it has run."""
    names, forward = [], module.forward

    @functools.wraps(forward)
    def flat(*args, **kwargs):
        found = tensors_of(forward(*args, **kwargs))
        names[:] = [name for name, _ in found]
        return tuple(tensor for _, tensor in found)
    own = module.__dict__.get("forward")
    module.forward = flat
    try:
        yield names
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


NORMS = (nn.modules.batchnorm._NormBase,)


def norms(module, remove_duplicate=True):
    """(name, norm) of every part that has running statistics; of one with several names the first, or all."""
    return [(name, part) for name, part in module.named_modules(remove_duplicate=remove_duplicate)
            if isinstance(part, NORMS) and part.running_mean is not None]
