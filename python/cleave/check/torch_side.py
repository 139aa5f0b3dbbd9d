"""One training step by PyTorch without its update: loss, gradients of all parameters, statistics after it.

The module is copied and computes in float64 where it can; what its own type changes is the rounding. Random masks become their means, so that dropouts are identities.
"""
import collections
import contextlib
import copy

import numpy as np
import torch

from cleave.check.losses import sum_of
from cleave.export.forms import tensors_of
from cleave.export.randomness import RandomDraws
from cleave.export.statement import named_tensors, ties

# rounding: the norm of what the module's own type changes in each gradient, loss_rounding in the loss
# unreached: parameters that PyTorch gives no gradient, not even of zeros
Pass = collections.namedtuple("Pass", "loss gradients tensors order dropouts precision rounding loss_rounding unreached")
HALVES = (torch.float16, torch.bfloat16)


class TorchSide:
    """A copy of the module, in the modes that it has; in train() if the module is in eval()."""

    def __init__(self, module):
        self.module = copy.deepcopy(module).cpu()
        if not self.module.training:
            self.module.train()
        self.initial = {name: tensor.detach().numpy(force=True) if tensor.dtype != torch.bfloat16 else
                        tensor.detach().float().numpy() for name, tensor in named_tensors(self.module).items()}
        self.requires_grad = {name: tensor.requires_grad for name, tensor in named_tensors(self.module).items()
                              if isinstance(tensor, torch.nn.Parameter)}
        self.tied = ties(named_tensors(self.module))
        self.epsilons = {name: torch.finfo(tensor.dtype).eps for name, tensor in named_tensors(self.module).items()
                         if tensor.dtype in HALVES}
        self.has_fp16 = any(tensor.dtype == torch.float16 for tensor in named_tensors(self.module).values())
        self.stored = [name for name in self.module.state_dict() if name in self.initial]

    def outputs(self, example):
        """The outputs, with their names, of a pass that changes nothing."""
        with torch.no_grad(), RandomDraws(self.module), _kept_buffers(self.module):
            return tensors_of(self.module(*example.args, **example.kwargs))

    def run(self, example, losses, names, labels):
        """The Pass of the sum of the recipe's losses; names: of the outputs; labels: arrays by name."""
        single = self._single(example, losses, names, labels)
        try:
            exact = self._run(copy.deepcopy(self.module).double(), example, losses, names, labels, torch.float64)
        except (RuntimeError, TypeError, NotImplementedError):  # a module that names float32
            return single
        rounding = {name: float(np.linalg.norm(single.gradients[name] - gradient)) for name, gradient in exact.gradients.items()}
        return exact._replace(rounding=rounding, loss_rounding=abs(single.loss - exact.loss))

    def _single(self, example, losses, names, labels):
        """The Pass in the module's own types if they have 16 bits, else in float32."""
        if self.epsilons:
            try:
                return self._run(copy.deepcopy(self.module), example, losses, names, labels, None)
            except (RuntimeError, TypeError, NotImplementedError):  # a CPU that does not compute in them
                pass
        return self._run(copy.deepcopy(self.module).float(), example, losses, names, labels, torch.float32)

    def _run(self, module, example, losses, names, labels, precision):
        def at(leaf):
            return leaf.detach().cpu().to(precision or leaf.dtype) if leaf.is_floating_point() else leaf.detach().cpu()
        inputs = example.mapped(at)
        order, hooks = {}, []

        def enters(name):
            def seen(*_):
                order.setdefault(name, len(order))
            return seen
        for name, part in module.named_modules(remove_duplicate=False):
            hooks.append(part.register_forward_pre_hook(enters(name)))
        with RandomDraws(module) as draws:
            found = tensors_of(module(*inputs.args, **inputs.kwargs))
        for hook in hooks:
            hook.remove()
        labels = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in labels.items()}
        outputs = (tensor.float() if tensor.dtype in HALVES else tensor for _, tensor in found)  # as the loss of a plan
        value = sum_of(losses, dict(zip(names, outputs)), labels)
        module.zero_grad(set_to_none=True)
        with RandomDraws(module):
            value.backward()
        gradients = {name: np.zeros(tuple(parameter.shape)) if parameter.grad is None else parameter.grad.double().numpy()
                     for name, parameter in module.named_parameters(remove_duplicate=False)}
        unreached = {name for name, parameter in module.named_parameters(remove_duplicate=False) if parameter.grad is None}
        tensors = {name: tensor.detach().double().numpy() if tensor.is_floating_point() else tensor.detach().numpy()
                   for name, tensor in named_tensors(module).items()}
        ranks = {name: order.get(name.rpartition(".")[0], len(order)) for name in tensors}
        share = max([1e-4, *self.epsilons.values()])
        return Pass(float(value.detach()), gradients, tensors, ranks, [ratio for _, ratio, _ in draws.dropouts],
                    str(precision or "16 bits").removeprefix("torch."),
                    {name: share * float(np.linalg.norm(gradient)) for name, gradient in gradients.items()},
                    (1e-6 if not self.epsilons else share) * abs(float(value.detach())), unreached)


@contextlib.contextmanager
def _kept_buffers(module):
    saved = [(buffer, buffer.clone()) for buffer in module.buffers()]
    yield
    for buffer, value in saved:
        buffer.copy_(value)
