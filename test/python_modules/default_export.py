"""The file that `torch.onnx.export(module, example, path, dynamo=True, dynamic_shapes=...)` writes, as PyTorch's documents say.

    default_export(module, Example((torch.zeros(4, 20),)), "default.onnx")     # optimized, without a statement
"""
import copy

import torch
from cleave.export.dynamo import quiet
from cleave.export.forms import exportable, tensors_of
from cleave.export.randomness import RandomDraws


def default_export(module, example, path):
    """The batch is open where the exporter can leave it so, else it is the example's. Other failures are the exporter's own."""
    module, failure = copy.deepcopy(module), None
    with exportable(module, []):  # what the exporter cannot write at all, its users choose otherwise, too
        with torch.no_grad(), RandomDraws(module):
            outputs = [name for name, _ in tensors_of(copy.deepcopy(module)(*example.args, **example.kwargs))]
        inputs = example.names(module)
        fine = all(outputs) and not set(outputs) & set(inputs)
        names = {"input_names": inputs, "output_names": outputs if fine else None}
        for shapes in (example.dynamic_shapes(module, torch.export.Dim("batch")), None):
            try:
                with quiet():
                    torch.onnx.export(module, example.args, str(path), kwargs=example.kwargs, dynamo=True, dynamic_shapes=shapes,
                                      verbose=False, **names)
                return
            except Exception as error:  # exporters raise what they like
                failure = error
    raise failure
