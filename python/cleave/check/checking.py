"""One check from beginning to end: both sides' step on the same batch, and their comparison."""
import contextlib
import inspect
import os
import pathlib

import numpy as np
import onnx
import torch

from cleave._tool import CleaveError, run_tool
from cleave.check import ImportCheck, ImportMismatch
from cleave.check.cleave_side import CleaveSide
from cleave.check.differences import Comparison
from cleave.check.losses import label_names, losses_in, outputs_of
from cleave.check.random_batch import inputs_of_file, random_inputs, random_labels
from cleave.check.recipes import LR, batch_of, gradient_recipe, left_out, parse, rate_of, read_recipe
from cleave.check.torch_side import TorchSide
from cleave.export.batch_sizes import has_batch
from cleave.export.example import Example, tensor_of
from cleave.export.graph import Graph
from cleave.export.making import first_line
from cleave.export.statement import read
from cleave.export.training_form import active_dropouts

SAMPLES = 4
TRACED_SAMPLES = 64  # a trace hides which sizes it distinguishes: up to this batch all samples are checked


class Checking:
    def __init__(self, module, model_or_plan, recipe, example, size):
        self.module, self.example = module, example
        self.path, self.recipe = _model_and_recipe(model_or_plan, recipe)
        self.graph = Graph(onnx.load(str(self.path), load_external_data=False), self.path.parent)
        self.stated = read(self.graph.model)
        self.size = size or self._size()

    def _size(self):
        """Few samples where they take the same way through forward as the recipe's batch, else that many."""
        stated = self.stated or {}
        right, trained = stated.get("batches"), batch_of(self.recipe)
        if trained is None:
            return SAMPLES if has_batch(right, SAMPLES) else right[0][0]
        by_trace = not stated.get("exporter", "").endswith("dynamo") and trained <= TRACED_SAMPLES
        is_same = has_batch(right, SAMPLES) and has_batch(right, trained)
        return min(SAMPLES, trained) if is_same and not by_trace else trained

    def run(self, batch, accepted):
        side = TorchSide(self.module)
        outputs = [value.name for value in self.graph.model.graph.output]
        inputs = [value for value in self.graph.model.graph.input if value.name not in self.graph.initializers]
        losses = losses_in(self.recipe)
        if not losses:
            raise CleaveError("a check needs the recipe's `loss`", 1)
        for name in (name for loss in losses for name in outputs_of(loss, outputs)):
            if name not in outputs:
                raise CleaveError(f"loss.output: the model has no output {name!r}, but {', '.join(outputs)}", 1)
        fixed = _fixed_batch(inputs)
        example = self._example(inputs, batch, fixed)
        recipe = gradient_recipe(self.recipe, None if fixed else example.batch, self.stated is not None)
        rate = LR
        with CleaveSide(self.path, recipe) as cleave_side:
            random = np.random.default_rng(51)
            with _in_pytorch(example):
                if batch is None:
                    example = random_inputs(side, example, random)
                arrays = dict(zip((value.name for value in inputs), map(_array, example.ordered(side.module))))
                labels = self._labels(side, cleave_side, losses, example, arrays, outputs, batch, random)
                seen = side.run(example, losses, outputs, labels)
            if not side.has_fp16:
                step = cleave_side.step({**arrays, **labels})
        if side.has_fp16:
            rate = rate_of(max((float(np.abs(gradient).max(initial=0)) for gradient in seen.gradients.values()), default=0.0))
            with CleaveSide(self.path, {**recipe, "optimizer": {"kind": "sgd", "lr": rate}}) as cleave_side:
                step = cleave_side.step({**arrays, **labels})
        counters = {entry["name"] for entry in (self.stated or {}).get("tensors", []) if entry.get("changes")}
        found, figures = Comparison(side, seen, step, rate, left_out(self.recipe), lambda name: name in counters or accepted(name)).run()
        found = self._dropouts(seen) + found
        if found:
            raise ImportMismatch(found)
        error = abs(step.loss - seen.loss) / max(abs(seen.loss), 1e-12)
        return ImportCheck(seen.loss, error, figures.gradients, figures.worst, figures.worst_error, len(seen.dropouts),
                           seen.precision)

    def _example(self, inputs, batch, fixed):
        """The example's inputs, with the batch's arrays in their places; without an example the arrays are all inputs."""
        names = [value.name for value in inputs]
        if self.example is None:
            arrays = batch or inputs_of_file(inputs, self.recipe.get("dims", {}), fixed or self.size)
            return self._from_arrays({name: _array(arrays[name]) for name in names})
        example = Example(self.example)
        if batch is None:
            return example.resized(fixed or self.size) if example.batch else example
        given = {new: _array(batch[old]) for old, new in zip(names, example.names(self.module)) if old in batch}
        example = example.filled(self.module, given)
        example.batch = example.ordered(self.module)[0].shape[0]
        return example

    def _from_arrays(self, arrays):
        """By forward's names where the file has them, else in order."""
        bf16 = {value.name for value in self.graph.model.graph.input if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16}
        tensors = {name: tensor_of(array, torch.bfloat16 if name in bf16 else None) for name, array in arrays.items()}
        known = inspect.signature(self.module.forward).parameters
        return Example(tensors if all(name in known for name in tensors) else tuple(tensors.values()))

    @staticmethod
    def _labels(side, cleave_side, losses, example, arrays, outputs, batch, random):
        """{name: array} of the labels, none where the graph computes its loss."""
        left = [name for name in cleave_side.inputs if name not in arrays]
        if batch is not None:
            for name in left:
                if name not in batch:
                    raise CleaveError(f"the batch has no {name!r}", 2)
            return {name: _array(batch[name]) for name in left}
        if not left:
            return {}
        found = dict(zip(outputs, (tensor for _, tensor in side.outputs(example))))
        labels = {}
        for name in left:
            dtype, shape = cleave_side.inputs[name]
            loss = next(loss for loss in losses if name in label_names(loss))
            longest = cleave_side.inputs.get(label_names(loss)[0], (dtype, shape))[1][-1:]
            labels[name] = random_labels(loss, name, dtype, shape, found[outputs_of(loss, outputs)[0]], *longest or (1,), random)
        return labels

    def _dropouts(self, seen):
        """The file must drop what the module drops: the same ratios."""
        want = sorted(round(ratio, 6) for ratio in seen.dropouts)
        have = sorted(round(ratio, 6) for ratio in active_dropouts(self.graph))
        if len(want) == len(have) and all(abs(a - b) < 2e-6 for a, b in zip(want, have)):
            return []
        return [f"dropout: the module drops with {want or 'no ratio'}, the file with {have or 'none'}"]


@contextlib.contextmanager
def _in_pytorch(example):
    try:
        yield
    except CleaveError:
        raise
    except Exception as error:  # a module raises what it likes
        raise CleaveError(f"the check's step in PyTorch, with a batch of {example.batch}, failed: {type(error).__name__}: "
                          f"{first_line(error)}", 1) from error


def _array(value):
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach().cpu()
    return value.view(torch.int16).numpy().view(np.uint16) if value.dtype == torch.bfloat16 else value.numpy()  # bf16's bits


def _fixed_batch(inputs):
    """The batch of a model that was exported for one, or None."""
    sizes = [value.type.tensor_type.shape.dim for value in inputs]
    symbolic = any(size.dim_param for dims in sizes for size in dims)
    return None if symbolic else next((dims[0].dim_value for dims in sizes if len(dims)), None)


def _model_and_recipe(model_or_plan, recipe):
    """The path of the .onnx file and the recipe, which a plan has itself."""
    path = pathlib.Path(getattr(model_or_plan, "path", model_or_plan))
    if not path.exists():
        raise CleaveError(f"{os.fspath(path)}: no such file", 1)
    if path.suffix == ".onnx":
        if recipe is None:
            raise CleaveError("a check of an .onnx file needs a recipe: its loss", 2)
        return path, read_recipe(recipe)
    import json
    report = json.loads(run_tool("report", path, "--format", "json", quiet=True))
    model = getattr(model_or_plan, "model", None) or report["model"]
    model = pathlib.Path(model["path"] if isinstance(model, dict) else model)
    return model, read_recipe(recipe) if recipe is not None else parse(report["recipe"])
