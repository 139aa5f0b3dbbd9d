"""Exports a torch module to ONNX in the one form that trains as the module does, with a statement of what it is.

    import cleave
    cleave.export(module, (torch.zeros(4, 20),), "model.onnx")        # or: python -m cleave.export net.py:build -o model.onnx

Nothing is folded, merged or dropped, the batch stays open, and BatchNorm and Dropout are in training form. The statement
(statement.py) says of every parameter and buffer what it is and where the graph holds it, so that Cleave guesses nothing.
"""
import contextlib
import warnings

from cleave._tool import CleaveError
from cleave._whole import whole


def export(module, example, path, *, kwargs=None, dynamic_batch=True, input_names=None, output_names=None, exporter=None,
           weights=True, batch=None):
    """Writes `module` as ONNX to `path`, and returns its statement. The module stays as it is.

    example: a tensor, a tuple of inputs, or a dictionary of keyword inputs; kwargs: keyword inputs beside a tuple. Dimension 0
    of every tensor that has the first tensor's size there is the batch. dynamic_batch=False fixes it. All other
    sizes are the example's (docs/guide/lengths.md has an export with a free length). exporter: "dynamo" or "torchscript";
    without it the second where the first fails. weights=False leaves the numbers of the parameters out: they may be on the
    meta device (without_weights), and a run needs a recipe with `init`. batch: the recipe's, for a forward that computes
    differently for some sizes; without it the example's is the one. What the export chose is a remark of the statement and a
    warning. Raises CleaveError with the name of what cannot be exported for training.
    """
    try:
        import onnx  # noqa: F401
        import torch
    except ImportError as error:
        raise CleaveError(f"an export needs torch, onnx and onnxscript: {error}", 2) from None
    from cleave.export.making import Making
    if not isinstance(module, torch.nn.Module):
        raise CleaveError(f"a torch.nn.Module is exported, not {type(module).__name__}", 2)
    if exporter not in (None, "dynamo", "torchscript"):
        raise CleaveError(f"exporter is \"dynamo\" or \"torchscript\", not {exporter!r}", 2)
    if exporter == "torchscript" and not weights:
        raise CleaveError("exporter=\"torchscript\" runs the module, which needs its weights: weights=False needs \"dynamo\"", 2)
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise CleaveError(f"batch is a number of samples, not {batch!r}", 2)
    with whole(path) as partial:
        making = Making(module, example, kwargs, partial, dynamic_batch, exporter, weights, batch)
        statement = making.run(input_names, output_names)
    for remark in statement["remarks"]:
        warnings.warn(f"cleave.export: {remark}", stacklevel=2)
    return statement


@contextlib.contextmanager
def without_weights():
    """Modules that are built within it have their parameters on the meta device, without memory; buffers have their numbers.

        with cleave.without_weights():
            model = LlamaForCausalLM(config)
        cleave.export(model, example, "large.onnx", weights=False)
    """
    from cleave.export.weightless import parameters_on_meta
    with parameters_on_meta():
        yield
