"""Plans and estimates, by the command `cleave`."""
import json
import os
import pathlib
import tempfile

from cleave._tool import CleaveError, run_tool
from cleave.reports import Comparison, Report


def _exported(model, example, folder):
    """The path of an ONNX model; a torch module is exported, with a batch that the recipe chooses."""
    if isinstance(model, (str, os.PathLike)):
        return model
    import torch
    if not isinstance(model, torch.nn.Module):
        raise CleaveError(f"a model is a path or a torch.nn.Module, not {type(model).__name__}", 2)
    if example is None:
        raise CleaveError("a torch module needs `example`: a tuple of inputs to export it with", 2)
    example = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    path = pathlib.Path(folder, "model.onnx")
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} if isinstance(part, torch.Tensor) and part.dim() > 0 else None for part in example)
    torch.onnx.export(model.train(), example, str(path), dynamo=True, dynamic_shapes=shapes)
    return path


def _recipe(recipe, folder):
    """A recipe's path; a dictionary is written to a file (JSON is YAML)."""
    if isinstance(recipe, (str, os.PathLike)):
        return recipe
    path = pathlib.Path(folder, "recipe.yaml")
    path.write_text(json.dumps(recipe, indent=2))
    return path


def _flags(options):
    """split options as flags: zero=3 is --zero 3, sequence_parallel=True is --sequence-parallel."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(flag)
            elif one is not None and one is not False:
                words += [flag, str(one)]
    return words


class Plan:
    """A compiled plan, in a file. Of one that has no path of its own, the folder lives as long as the plan."""

    def __init__(self, path, folder=None):
        self.path = pathlib.Path(path)
        self._folder = folder

    def report(self):
        return Report(run_tool("report", self.path, "--format", "json"))

    def verify(self, steps=None):
        """Compares the plan's steps with those of the unsplit model; the command's text. Raises CleaveError if they differ."""
        return run_tool("verify", self.path, *(["--steps", steps] if steps else []))

    def __repr__(self):
        return f"cleave.Plan({str(self.path)!r})"


def compile(model, recipe, cluster, path=None, example=None, **split):
    """A plan of `model` (a path, or a torch module with `example` inputs) for a cluster.

    recipe: a path or a dictionary. path: the plan's file, and a torch module's .onnx beside it; without one both lie in a
    temporary folder. Further keys are flags of `cleave compile`: mesh="dp=2,tp=2", zero=3, like="megatron", ...
    """
    folder = None if path else tempfile.TemporaryDirectory(prefix="cleave-")
    path = pathlib.Path(path or pathlib.Path(folder.name, "model.plan"))
    model = _exported(model, example, path.parent)
    with tempfile.TemporaryDirectory() as scratch:
        run_tool("compile", model, "--recipe", _recipe(recipe, scratch), "--cluster", cluster, "-o", path, *_flags(split))
    return Plan(path, folder)


def estimate(model, recipe, cluster, example=None, **split):
    """The Report of the best split, without compiling; of several clusters a Comparison."""
    with tempfile.TemporaryDirectory() as scratch:
        model, recipe = _exported(model, example, scratch), _recipe(recipe, scratch)
        clusters = [cluster] if isinstance(cluster, (str, os.PathLike)) else list(cluster)
        text = run_tool("estimate", model, *clusters[1:], "--recipe", recipe, "--cluster", clusters[0], "--json",
                        *_flags(split))
    if len(clusters) == 1:
        report = Report(text)
        return report if isinstance(cluster, (str, os.PathLike)) else Comparison([report.data])
    return Comparison(json.loads(text))
