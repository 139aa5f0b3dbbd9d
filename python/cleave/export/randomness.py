"""Random masks of a forward pass: which there are, and the pass without them.

    with RandomDraws(module) as draws:
        module(x)
    draws.dropouts   # [("h.0.drop", 0.1, False), ...]: where, ratio, whether one number counts for many elements
    draws.others     # ["blocks.1: aten.randn"]: what is random and no dropout

Every mask becomes its mean, so that a dropout is the identity and no random number is drawn.
"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class RandomDraws(TorchDispatchMode):
    def __init__(self, module):
        super().__init__()
        self._module, self._stack, self._hooks = module, [], []
        self.dropouts, self.others = [], []

    def __enter__(self):
        def enters(name):
            return lambda *_: self._stack.append(name)

        def leaves(*_):
            self._stack.pop()
        for name, part in self._module.named_modules():
            self._hooks.append(part.register_forward_pre_hook(enters(name)))
            self._hooks.append(part.register_forward_hook(leaves, always_call=True))
        return super().__enter__()

    def __exit__(self, *error):
        for hook in self._hooks:
            hook.remove()
        return super().__exit__(*error)

    def _record(self, ratio, shared):
        if ratio > 0:
            self.dropouts.append((self._stack[-1] if self._stack else "", round(ratio, 7), shared))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in (aten.bernoulli_.float, aten.bernoulli.p):  # dropouts on the CPU, droppath
            noise, keep = args[0], args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            self._record(1 - keep, noise.dim() > 1 and noise.shape[-1] == 1)
            return aten.fill_.Scalar(noise, keep) if function is aten.bernoulli_.float else torch.full_like(noise, keep)
        if function is aten.native_dropout.default:
            data, ratio, train = args
            if not train or ratio == 0:
                return function(*args, **kwargs)
            self._record(ratio, False)
            return data.clone(), torch.full_like(data, True, dtype=torch.bool)
        if function is aten.native_dropout_backward.default:
            return args[0] * args[1]
        if torch.Tag.nondeterministic_seeded in function.tags and not function.name().startswith("aten::_scaled_dot_product"):
            self.others.append(f"{self._stack[-1] if self._stack else 'forward'}: {function.name().replace('::', '.')}")
        return function(*args, **kwargs)
