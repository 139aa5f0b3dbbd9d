"""Export by TorchScript, for modules that torch.export cannot trace. Constants stay, and training mode is kept.

A trace keeps the side of a branch that the example takes. A module whose Python reads data is refused, with the line; where it
reads sizes, the lines are told.
"""
import contextlib
import os
import sys
import warnings

import torch

from cleave._tool import CleaveError
from cleave.export.attention import PlainAttention
from cleave.export.data_reads import LIBRARIES, data_reads
from cleave.export.dynamo import quiet
from cleave.export.graph import raw


def translated(module, example, names, path, dynamic):
    """Writes the ONNX graph. `names`: of the tensors of the example, in order. Returns the lines of Python that read sizes."""
    reads = data_reads(module, example)
    if reads:
        raise CleaveError(f"{reads[0]} reads numbers of data, and a graph would keep those of the example; torch.where chooses "
                          "by data", 1)
    tensors = example.ordered(module)
    axes = {name: {0: "batch"} for name, leaf in zip(names, tensors) if dynamic and example.is_batched(leaf)}
    mixed = any(part.training != module.training for part in module.modules())
    form = torch.onnx.TrainingMode.PRESERVE if mixed else torch.onnx.TrainingMode.TRAINING
    args = (*example.args, example.kwargs) if example.kwargs else example.args
    with quiet(), warnings.catch_warnings(record=True) as told, _quiet_process(), PlainAttention():
        warnings.simplefilter("always", torch.jit.TracerWarning)
        torch.onnx.export(module, args, str(path), dynamo=False, do_constant_folding=False, training=form, input_names=names,
                          dynamic_axes=axes or None, opset_version=18)
    lines = [f"{one.filename}:{one.lineno}" for one in told if issubclass(one.category, torch.jit.TracerWarning)]
    return [line for line in dict.fromkeys(lines) if not line.startswith(LIBRARIES)]


def computes_the_same(first, second, buffers):
    """Whether two graphs have the same nodes and numbers, as traces with two batch sizes that took the same branches have.
    `buffers`: names of those that tracing moves."""
    nodes = [[node.SerializeToString() for node in graph.node] for graph in (first, second)]
    numbers = [[(tensor.name, tensor.SerializeToString()) for tensor in graph.initializer if tensor.name not in buffers]
               for graph in (first, second)]
    return nodes[0] == nodes[1] and sorted(numbers[0]) == sorted(numbers[1])


@contextlib.contextmanager
def _quiet_process():
    """Without the graphs that the C++ part prints when it cannot export an operator."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def restore_buffers(graph, buffers):
    """Gives buffers that tracing has moved (running statistics) the module's numbers again."""
    for name, buffer in buffers.items():
        tensor = graph.initializers.get(name)
        if tensor is not None and list(tensor.dims) == list(buffer.shape) and tensor.HasField("raw_data"):
            tensor.raw_data = raw(buffer)
