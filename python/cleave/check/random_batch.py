"""A random batch for a check: inputs of the example's kind or of the file's, labels as the loss takes them."""
import contextlib

import numpy as np
import onnx
import torch
from torch import nn

from cleave._tool import CleaveError


def inputs_of_file(values, dims, batch):
    """{input: array} of the shapes that a graph's inputs have: normal floats, ones for the rest. Other sizes that are open are
    those of the recipe's `dims`."""
    arrays = {}
    for value in values:
        shape = []
        for at, size in enumerate(value.type.tensor_type.shape.dim):
            known = size.dim_value or dims.get(size.dim_param)
            if "batch" in size.dim_param or not known and at == 0:
                known = batch
            if not known:
                raise CleaveError(f"random data need the size of {size.dim_param!r} in {value.name!r}: the recipe's "
                                  f"`dims: {{{size.dim_param}: N}}`, `example`, or a batch", 2)
            shape.append(known)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        floats = np.issubdtype(dtype, np.floating)
        arrays[value.name] = np.random.default_rng(51).standard_normal(shape).astype(dtype) if floats else np.ones(shape, dtype)
    return arrays


@contextlib.contextmanager
def _vocabularies(module):
    """{address of a tensor: rows of the embedding that reads it}, filled while the module runs."""
    found = {}

    def seen(part, args):
        if args and isinstance(args[0], torch.Tensor):
            address = args[0].data_ptr()
            found[address] = min(part.num_embeddings, found.get(address, part.num_embeddings))
    hooks = [part.register_forward_pre_hook(seen) for part in module.modules() if isinstance(part, nn.Embedding)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def random_inputs(side, example, random):
    """The example with other numbers: token numbers below the vocabulary, normal floats; masks keep their values."""
    with _vocabularies(side.module) as sizes:
        side.outputs(example)

    def at(leaf):
        if leaf.data_ptr() in sizes and not leaf.is_floating_point():
            return torch.from_numpy(random.integers(0, sizes[leaf.data_ptr()], tuple(leaf.shape))).to(leaf.dtype)
        values = leaf.detach().cpu()
        if leaf.is_floating_point() and leaf.numel() > 1:
            spread, mean = float(values.double().std()), float(values.double().mean())
            if spread > 0 or mean == 0:
                drawn = random.standard_normal(tuple(leaf.shape)) * (spread or 1.0) + mean
                return torch.from_numpy(drawn).to(leaf.dtype)
        return values
    return example.mapped(at)


def _ctc_steps(output, samples):
    return output.shape[0] if output.shape[1] == samples else output.shape[1]


def random_labels(loss, name, dtype, shape, output, longest, random):
    """Labels of this name, type and shape for an output of the module. `longest`: the last size of the loss' labels."""
    if loss["kind"] == "ctc":
        if name == loss.get("input_lengths", "input_lengths"):
            return np.full(shape, _ctc_steps(output, shape[0]), dtype)
        if name == loss.get("target_lengths", "target_lengths"):  # equal labels need a blank between them: 2 n - 1 steps
            return random.integers(1, min(longest, (_ctc_steps(output, shape[0]) + 1) // 2) + 1, shape).astype(dtype)
        classes, blank = output.shape[-1], loss.get("blank", 0)
        drawn = random.integers(0, max(classes - 1, 1), shape)
        return (drawn + (drawn >= blank)).astype(dtype)
    if loss["kind"] in ("hinge_embedding", "cosine_embedding", "margin_ranking"):
        return random.choice([-1, 1], shape).astype(dtype)
    if loss["kind"] in ("softmax_cross_entropy", "nll", "multi_margin") and np.issubdtype(dtype, np.integer):
        return random.integers(0, output.shape[loss.get("axis", -1)], shape).astype(dtype)
    if loss["kind"] in ("bce", "bce_with_logits"):
        return random.integers(0, 2, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return random.integers(0, 2, shape).astype(dtype)
    if loss["kind"] == "kl_div":
        return random.random(shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)
