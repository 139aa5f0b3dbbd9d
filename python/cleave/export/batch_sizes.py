"""The batch sizes that a traced graph is right for, where forward takes another way for others.

    right = batch_sizes(program, example)      # of `x * (3 if x.shape[0] == 8 else 1)`, traced with a batch of 2
    right                                      # [[1, 7, 1], [9, None, 1]]: first, last (None: no last), step
    has_batch(right, 8)                        # False; None has every size
"""
import math

import sympy
import torch

FIRST_SIZES = 4096  # sizes that are tried; more where a condition has larger numbers
MAX_SIZES = 1 << 20
MAX_RANGES = 64     # a list of more is that of the traced size alone


def has_batch(ranges, size):
    """Whether a size is in the ranges of a statement's `batches`; None: all sizes are."""
    return ranges is None or any(size >= first and (last is None or size <= last) and (size - first) % step == 0
                                 for first, last, step in ranges)


def worded(ranges):
    """[[1, 7, 1], [9, None, 1]] is "1 to 7, 9 and more"; [[2, None, 2]] is "2, 4, 6 and so on"."""
    def one(first, last, step):
        if first == last:
            return str(first)
        if step > 1:
            return f"{first}, {first + step}, {first + 2 * step} and so on" + (f" to {last}" if last else "")
        return f"{first} to {last}" if last else f"{first} and more"
    return ", ".join(one(*entry) for entry in ranges)


def batch_sizes(program, example):
    """The sizes for which all conditions that tracing recorded hold, as ranges; None where every size is right.

    torch.export notes a condition for each Python branch that reads the size. A size of 1 has none: it is never a variable.
    """
    environment, symbols = _environment(program)
    if environment is None:
        return None
    conditions = [guard.expr for guard in environment.guards if guard.expr.free_symbols and guard.expr.free_symbols <= symbols]
    bounds = [program.range_constraints[symbol] for symbol in symbols if symbol in program.range_constraints]
    lower = max((int(bound.lower) for bound in bounds if bound.lower.is_Integer), default=0)
    upper = min((int(bound.upper) for bound in bounds if bound.upper.is_Integer and bound.upper < MAX_SIZES), default=None)
    if not conditions and lower <= 2 and upper is None:
        return None
    numbers = [int(number) for condition in conditions for number in condition.atoms(sympy.Integer)]
    limit = min(MAX_SIZES, max([FIRST_SIZES, lower + 2, *(2 * abs(number) + 2 for number in numbers)]))
    holds = _tester(conditions, symbols)
    sizes = [size for size in range(1 if lower <= 2 else lower, 1 + min(limit, upper or limit)) if holds(size)]
    if len(sizes) == limit:
        return None
    ranges = _ranges(sizes, limit)
    return ranges if len(ranges) <= MAX_RANGES else [[example.batch, example.batch, 1]]


def _environment(program):
    """The ShapeEnv, and the symbols of the batch: those in dimension 0 of the inputs."""
    symbols, environment = set(), None
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and value.dim() and isinstance(value.shape[0], torch.SymInt):
            environment = value.shape[0].node.shape_env
            symbols |= value.shape[0].node.expr.free_symbols
    return environment, symbols


def _tester(conditions, symbols):
    try:
        from torch.utils._sympy.printers import PythonPrinter
        code = " and ".join(f"({PythonPrinter().doprint(condition)})" for condition in conditions) or "True"
        names = sorted(map(str, symbols))
        tested = eval(f"lambda {', '.join(f'{name}=0' for name in names)}: {code}", {"math": math})

        def holds(size):
            try:
                return bool(tested(*[size] * len(names)))
            except ZeroDivisionError:
                return False
        return holds
    except (ImportError, SyntaxError):  # an older torch
        return lambda size: all(condition.subs({symbol: size for symbol in symbols}) == sympy.true for condition in conditions)


def _ranges(sizes, limit):
    """Sorted sizes as arithmetic progressions; one that goes to the limit has no last."""
    ranges, at = [], 0
    while at < len(sizes):
        end = at + 1
        step = sizes[end] - sizes[at] if end < len(sizes) else 1
        while end < len(sizes) and sizes[end] - sizes[end - 1] == step:
            end += 1
        if end == at + 2 and step > 1 and end < len(sizes):  # two sizes are no progression
            end, step = at + 1, 1
        is_open = end == len(sizes) and sizes[-1] + step > limit
        ranges.append([sizes[at], None if is_open else sizes[end - 1], step])
        at = end
    return ranges
