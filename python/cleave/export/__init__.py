"""Exports a torch module to ONNX in the one form that trains as the module does, with a statement of what it is.

    import cleave
    cleave.export(module, (torch.zeros(4, 20),), "model.onnx")        # or: python -m cleave.export net.py:build -o model.onnx

Nothing is folded, merged or dropped, the batch stays open, and BatchNorm and Dropout are in training form. The statement
(statement.py) says of every parameter and buffer what it is and where the graph holds it, so that Cleave guesses nothing.
"""
import warnings

from cleave._tool import CleaveError
from cleave._whole import whole


def export(module, example, path, *, kwargs=None, dynamic_batch=True, input_names=None, output_names=None, exporter=None):
    """Writes `module` as ONNX to `path`, and returns its statement. The module stays as it is.

    example: a tensor, a tuple of inputs, or a dictionary of keyword inputs; kwargs: keyword inputs beside a tuple. Dimension 0
    of every tensor that has the first tensor's size there is the batch. dynamic_batch=False fixes it. exporter: "dynamo" or
    "torchscript"; without it the second where the first fails. What the export chose is a remark of the statement and a
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
    with whole(path) as partial:
        statement = Making(module, example, kwargs, partial, dynamic_batch, exporter).run(input_names, output_names)
    for remark in statement["remarks"]:
        warnings.warn(f"cleave.export: {remark}", stacklevel=2)
    return statement

