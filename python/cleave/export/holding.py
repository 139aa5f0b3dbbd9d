"""Where the numbers of a module's tensors are in the written graph.

    found = Search(graph).held(tensors)     # {"fc.weight": [{"initializer": "fc.weight", "form": "as_is"}], ...}

By name first, compared bit for bit; else by the numbers, in the forms of the statement: transposed, reshaped, as ranges.
Numbers that fit several places are `ambiguous`: the export is made once more with random numbers, which fit one.
A tensor without numbers is held by the initializer of its name and shape.
"""
import numpy as np
import torch

from cleave.export.graph import raw
from cleave.export.weightless import has_numbers


class Search:
    def __init__(self, graph):
        self.graph = graph
        self.bytes = {name: graph.bytes(name) for name in graph.initializers if graph.has_bytes(name)}
        self.by_size = {}
        for name, content in self.bytes.items():
            self.by_size.setdefault(len(content), []).append(name)
        self.ambiguous = []

    def held(self, tensors):
        """A list of places for each tensor; an empty one where the graph does not hold it."""
        found, left = {}, {}
        for name, tensor in tensors.items():
            named = name in self.graph.initializers and self._shape(name) == list(tensor.shape)
            content = raw(tensor) if has_numbers(tensor) else None
            if named and self.bytes.get(name) == content:
                found[name] = [{"initializer": name, "form": "as_is"}]
            elif content is None:
                found[name] = []
            else:
                left[name] = (tensor, content)
        taken = {place["initializer"] for places in found.values() for place in places}
        for name, (tensor, content) in left.items():
            found[name] = self._search(name, tensor, content, taken)
        return found

    def _shape(self, name):
        return list(self.graph.initializers[name].dims)

    def _search(self, name, tensor, content, taken):
        places = []
        for other in self.by_size.get(len(content), []) if content else []:
            if other in taken:
                continue
            if self.bytes[other] == content:
                places.append({"initializer": other, "form": "as_is" if self._shape(other) == list(tensor.shape) else "reshaped"})
            elif tensor.dim() == 2 and self.bytes[other] == raw(tensor.t()):
                places.append({"initializer": other, "form": "transposed"})
        places = places or self._ranges(tensor, content, taken)
        if len(places) > 1 or (places and _is_uniform(tensor)):
            self.ambiguous.append(name)
        return places[:1]

    def _ranges(self, tensor, content, taken):
        """Blocks of rows of a larger initializer: a part of a concatenation, an LSTM's gates in another order."""
        if not content or tensor.dim() == 0 or _is_uniform(tensor):
            return []
        size, places = tensor.element_size(), []
        for other, whole in self.bytes.items():
            if other in taken or len(whole) < len(content):
                continue
            for blocks in (1, 3, 4):
                ranges = _block_ranges(content, whole, blocks, size)
                if ranges:
                    places.append({"initializer": other, "form": "ranges", "ranges": ranges})
                    break
        return places


def _is_uniform(tensor):
    """Whether all elements are one number, which tells nothing."""
    flat = tensor.detach().reshape(-1)
    return flat.numel() < 2 or bool((flat == flat[0]).all())


def _block_ranges(content, whole, blocks, size):
    """[begin, count] of each of a tensor's equal blocks inside an initializer's bytes; None if one is not there."""
    if len(content) % (blocks * size):
        return None
    step, ranges = len(content) // blocks, []
    for at in range(0, len(content), step):
        begin = whole.find(content[at:at + step])
        while begin >= 0 and begin % size:
            begin = whole.find(content[at:at + step], begin + 1)
        if begin < 0:
            return None
        ranges.append([begin // size, step // size])
    return ranges


class distinct:
    """Within it these tensors of a module have random numbers, all different; then their own again."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __enter__(self):
        self.saved = [tensor.detach().clone() for tensor in self.tensors]
        random = np.random.default_rng(5107)
        with torch.no_grad():
            for tensor in self.tensors:
                tensor.copy_(torch.from_numpy(random.uniform(0.5, 1.5, tuple(tensor.shape)) if tensor.is_floating_point()
                                              else random.integers(0, 2, tuple(tensor.shape))))

    def __exit__(self, *_):
        with torch.no_grad():
            for tensor, value in zip(self.tensors, self.saved):
                tensor.copy_(value)
