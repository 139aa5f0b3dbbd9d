"""Plans and estimates, by the command `cleave`."""
import json
import os
import pathlib
import tempfile

from cleave._tool import CleaveError, alone, run_tool
from cleave.check import ImportMismatch, check_import
from cleave.check.recipes import batch_of, plain, read_recipe
from cleave.export import export
from cleave.reports import Comparison, Report


CHECKED_PARAMETERS = 50_000_000  # modules up to this size are checked unless check=False: seconds, and five copies in memory


def _exported(model, example, weights, path, recipe):
    """The path of an ONNX model; a torch module is exported to `path`, with a batch that the recipe chooses."""
    if isinstance(model, (str, os.PathLike)):
        return model
    import torch
    from cleave.export.batch_sizes import has_batch, worded
    if not isinstance(model, torch.nn.Module):
        raise CleaveError(f"a model is a path or a torch.nn.Module, not {type(model).__name__}", 2)
    if example is None:
        raise CleaveError("a torch module needs `example`: a tuple of inputs to export it with", 2)
    sizes = _batches(recipe)
    right = export(model, example, path, weights=weights, batch=sizes[0] if sizes else None).get("batches")
    wrong = [size for size in sizes if not has_batch(right, size)]
    if wrong:
        raise CleaveError(f"forward takes another way for a batch of {wrong[0]} than for one of {sizes[0]}, and a plan has one way: "
                          f"its export is for batches of {worded(right)}", 1)
    return path


def _batches(recipe):
    """The batch sizes of a recipe's steps, `dims.batch` first; none where it cannot be read: the compilation tells why."""
    try:
        recipe = read_recipe(recipe)
        sizes = [recipe, *({"dims": stage} for stage in recipe.get("ramp") or [])]
        return [size for size in map(batch_of, sizes) if size] if batch_of(recipe) else []
    except Exception:
        return []


def _import_check(module, example, path, recipe):
    """What the report says of the import after one step beside PyTorch's, or the error of a recipe that does not compile: the
    compilation comes to the same one, and its message names the recipe's lines."""
    try:
        return f"checked against the module: {check_import(module, path, None, recipe, example=example)}", None
    except ImportMismatch:
        raise
    except CleaveError as error:
        return None, error


def _recipe(recipe, folder):
    """A recipe's path; a dictionary is written to a file (JSON is YAML). None is an empty one: the model may say all."""
    if isinstance(recipe, (str, os.PathLike)):
        return recipe
    path = pathlib.Path(folder, "recipe.yaml")
    path.write_text(json.dumps(plain({} if recipe is None else recipe), indent=2))
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
    """A compiled plan, in a file; `model` is the .onnx file. A plan without a path of its own has a folder that lives with it."""

    def __init__(self, path, folder=None, model=None):
        self.path = pathlib.Path(path)
        self.model = model and pathlib.Path(model)
        self._folder = folder

    def report(self):
        return Report(run_tool("report", self.path, "--format", "json"))

    def verify(self, steps=None):
        """Compares the plan's steps with those of the unsplit model; the command's text. Raises CleaveError if they differ."""
        return run_tool("verify", self.path, *(["--steps", steps] if steps else []))

    def __repr__(self):
        return f"cleave.Plan({str(self.path)!r})"


def compile(model, recipe, cluster, path=None, example=None, check=None, weights=True, **split):
    """A plan of `model` (a path, or a torch module with `example` inputs) for a cluster.

    recipe: a path or a dictionary. path: the plan's file, such as x.plan; a torch module is exported beside it, to x.onnx. Without
    a path, both are in a temporary folder that this process removes at its end: no later process can read a snapshot's weights.
    check: whether one step of an exported module is compared with PyTorch's (check_import); without it for modules below 50
    million parameters. weights=False: export the module without its weights, which cannot be checked; a run then needs a recipe
    with `init`. Further keys are flags of `cleave compile`: mesh="dp=2,tp=2", zero=3, refine=4, ...
    """
    folder = None if path else tempfile.TemporaryDirectory(prefix="cleave-")
    path = pathlib.Path(path or pathlib.Path(folder.name, "model.plan"))
    if check and not weights:
        raise CleaveError("check=True computes a step of the module, and weights=False leaves its weights out", 2)
    file, result, failure = _exported(model, example, weights, path.with_suffix(".onnx"), recipe), None, None
    if file is not model and weights and (check or check is None and _parameters(model) < CHECKED_PARAMETERS):
        with alone():
            result, failure = _import_check(model, example, file, recipe)
    with tempfile.TemporaryDirectory() as scratch:
        run_tool("compile", file, "--recipe", _recipe(recipe, scratch), "--cluster", cluster, "-o", path,
                 *_flags({"import_check": result, **split}))
    if failure:
        raise failure
    return Plan(path, folder, file)


def _parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def estimate(model, recipe, cluster, example=None, weights=True, **split):
    """The Report of the best split, without compiling; of several clusters a Comparison. `model`, `example` and `weights` are
    those of `compile`."""
    with tempfile.TemporaryDirectory() as scratch:
        model, recipe = _exported(model, example, weights, pathlib.Path(scratch, "model.onnx"), recipe), _recipe(recipe, scratch)
        clusters = [cluster] if isinstance(cluster, (str, os.PathLike)) else list(cluster)
        text = run_tool("estimate", model, *clusters[1:], "--recipe", recipe, "--cluster", clusters[0], "--json",
                        *_flags(split))
    if len(clusters) == 1:
        report = Report(text)
        return report if isinstance(cluster, (str, os.PathLike)) else Comparison([report.data])
    return Comparison(json.loads(text))
