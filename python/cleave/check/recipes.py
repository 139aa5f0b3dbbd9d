"""The recipe of a check: the user's loss and roles of tensors, under plain SGD, so that one step shows the gradient.

w1 = w0 - LR g, with a rate so large that w0 is lost beside LR g: g is exact to the 24 bits of fp32.
"""
import collections.abc
import fnmatch
import math
import os
import pathlib

from cleave._tool import CleaveError

LR = float(1 << 20)
FP16_STEP = float(1 << 14)  # fp16 ends at 65,504
KEPT = ("dims", "loss", "trainable", "frozen", "frozen_rows", "batch_norm", "ties", "roles")


def read_recipe(recipe):
    """A recipe as a dictionary, from a path or as it is."""
    if not isinstance(recipe, (str, os.PathLike)):
        return plain(recipe)
    try:
        return parse(pathlib.Path(recipe).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise CleaveError(f"{os.fspath(recipe)}: {getattr(error, 'strerror', None) or error}", 1) from None


def plain(recipe):
    """The map that a recipe is, with Python's own numbers and lists in place of NumPy's and PyTorch's."""
    if not isinstance(recipe, collections.abc.Mapping):
        raise CleaveError(f"a recipe is a path or a dictionary, not {type(recipe).__name__}", 2)

    def at(value, where):
        if isinstance(value, collections.abc.Mapping):
            return {str(key): at(inner, f"{where}.{key}" if where else str(key)) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [at(inner, where) for inner in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value.item() if hasattr(value, "item") else value  # np.float64 is a float
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if hasattr(value, "tolist"):
            return value.tolist()
        raise CleaveError(f"the recipe's {where} is a {type(value).__name__}: a number, a text, a list or a map is expected", 2)
    return at(recipe, "")


def parse(text):
    try:
        import yaml
    except ImportError:
        raise CleaveError("reading a recipe here needs PyYAML: pip install pyyaml", 2) from None
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise CleaveError(f"the recipe is no YAML: {error}", 1) from None


def batch_of(recipe):
    """The recipe's `dims.batch`, or None."""
    batch = (recipe.get("dims") or {}).get("batch")
    return batch if isinstance(batch, int) and batch > 0 else None


def rate_of(largest):
    """A rate with which fp16 weights hold w0 - rate g, whose largest element is `largest`."""
    return min(LR, 2.0 ** math.floor(math.log2(FP16_STEP / largest))) if largest > 0 else LR


def gradient_recipe(recipe, batch, stated):
    """What shows the gradients. `stated`: the module's statement says what trains, and the recipe's choice does not matter."""
    kept = {key: recipe[key] for key in KEPT if key in recipe and not (stated and key in ("trainable", "frozen"))}
    dims = {**kept.get("dims", {}), **({"batch": batch} if batch else {})}
    return {**kept, **({"dims": dims} if dims else {}), "optimizer": {"kind": "sgd", "lr": LR}, "precision": "fp32",
            "dropout": "off"}


def left_out(recipe):
    """A function that tells whether the recipe freezes a parameter of this name."""
    trainable, frozen = recipe.get("trainable", ["*"]), recipe.get("frozen", [])

    def is_left_out(name):
        chosen = any(fnmatch.fnmatchcase(name, glob) for glob in trainable if not glob.startswith("!"))
        barred = [glob.lstrip("!") for glob in [*frozen, *(glob for glob in trainable if glob.startswith("!"))]]
        return not chosen or any(fnmatch.fnmatchcase(name, glob) for glob in barred)
    return is_left_out
