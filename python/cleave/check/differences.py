"""Compares a step of Cleave with one of PyTorch, tensor by tensor, and words what differs.

    Comparison(side, seen, step, rate, is_left_out, accepted).run()     # (["fc1.weight: gradient differs (relative 0.31)", ...], ...)

What is surely a cause comes first: lacking tensors, other numbers, what does not train; then gradients, which follow from it.
The bounds: PyTorch in float32 differs from itself in float64 by up to 1e-4 where a BatchNorm has few values, else by 1e-6;
Cleave differs no more (the models of test/python_modules), and a tanh GELU for the exact one by 3e-4.
"""
import collections

import numpy as np

GRADIENT = 2e-5          # of the gradient's own norm
CANCELLED = 1e-6         # of the largest norm of a gradient: what is left where terms cancel
ROUNDING = 10            # times what float32 changes in PyTorch
LOSS = 2e-6
STATISTICS = 1e-4
GRADIENTS = "gradient differs"

Figures = collections.namedtuple("Figures", "gradients worst worst_error")


def norm(array):
    return float(np.linalg.norm(np.asarray(array, np.float64).ravel()))


def relative(ours, theirs, floor=1e-12):
    return norm(np.asarray(ours, np.float64) - theirs) / max(norm(theirs), floor)


class Comparison:
    def __init__(self, side, seen, step, rate, is_left_out, accepted):
        self.side, self.seen, self.step, self.rate = side, seen, step, rate
        self.is_left_out, self.accepted = is_left_out, accepted
        self.largest = max(map(norm, seen.gradients.values()), default=0.0)
        self.found, self.errors = [], {}

    def run(self):
        """(the differences in the order of the forward pass, Figures of what agrees)."""
        for name in sorted(self.side.stored, key=lambda name: self.seen.order[name]):
            if not self.accepted(name):
                said = self._tensor(name)
                self.found += [f"{name}: {said}"] if said else []
        self.found += [f"{name}: in the file, and not in the module" for name in self.step.after
                       if name not in self.side.initial and not self.accepted(name)]
        self.found.sort(key=lambda said: GRADIENTS in said)
        self._loss()
        worst = max(self.errors, key=self.errors.get, default=None)
        return self.found, Figures(len(self.errors), worst, self.errors.get(worst, 0.0))

    def _loss(self):
        want = self.seen.loss
        if not abs(self.step.loss - want) <= LOSS * max(abs(want), 1e-2) + ROUNDING * self.seen.loss_rounding:
            self.found.append(f"loss: {self.step.loss:.7g} from the file, {want:.7g} in PyTorch")

    def _tensor(self, name):
        """What differs of one tensor, or None."""
        initial = self.side.initial[name]
        if name not in self.step.after:
            return self._lacking(name)
        before, after = self.step.before[name], self.step.after[name]
        if tuple(after.shape) != initial.shape:
            return f"its shape is {list(after.shape)} in the file, and {list(initial.shape)} in the module"
        if not np.issubdtype(initial.dtype, np.floating):
            return self._whole_numbers(name, after)
        if name not in self.side.requires_grad:
            return self._buffer(name, initial, before, after)
        if relative(before, initial.astype(np.float64)) > 1e-6 or not np.array_equal(np.isnan(before), np.isnan(initial)):
            return "its first numbers differ"
        return self._gradient(name, before.astype(np.float64), after.astype(np.float64))

    def _lacking(self, name):
        first = self.side.tied.get(name)
        if first in self.step.after or not self.side.initial[name].size or name in self.seen.unreached:
            return None
        gradient = self.seen.gradients.get(name)
        told = f", its gradient in PyTorch is {norm(gradient):.2g}" if gradient is not None and norm(gradient) else ""
        return f"in the module, and not in the file{told}"

    def _gradient(self, name, before, after):
        want, moved = self.seen.gradients[name], not np.array_equal(before, after)
        if not self.side.requires_grad[name]:
            return "trains in the file, and is frozen in the module" if moved else None
        if not moved and norm(want) > CANCELLED * self.largest:
            return None if self.is_left_out(name) else \
                f"does not train in the file, its gradient in PyTorch is {norm(want):.2g}"
        gap = norm((before - after) / self.rate - want)
        stored = self.side.epsilons.get(name, 0.0) * (norm(want) + norm(before) / self.rate)  # the weight after the step is rounded
        allowed = GRADIENT * norm(want) + CANCELLED * self.largest + ROUNDING * self.seen.rounding[name] + stored
        self.errors[name] = gap / max(norm(want), CANCELLED * self.largest / GRADIENT, 1e-30)
        if gap <= allowed:
            return None
        if norm(want) <= CANCELLED * self.largest:
            return f"{GRADIENTS}: its norm is {norm((before - after) / self.rate):.2g} from the file, and {norm(want):.2g} in PyTorch"
        return f"{GRADIENTS} (relative {gap / norm(want):.2g})"

    def _buffer(self, name, initial, before, after):
        want = self.seen.tensors[name]
        if relative(before, initial.astype(np.float64)) > 1e-6:
            return "its first numbers differ"
        if not relative(after, want, 1e-6) <= max(STATISTICS, 2 * self.side.epsilons.get(name, 0.0)):
            return f"differs after the step (relative {relative(after, want, 1e-6):.2g})"
        return None

    def _whole_numbers(self, name, after):
        return None if np.array_equal(after, self.seen.tensors[name]) else "differs after the step"
