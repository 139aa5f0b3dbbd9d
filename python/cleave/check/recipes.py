"""The recipe of a check: the user's loss and roles of tensors, under plain SGD, so that one step shows the gradient.

w1 = w0 - LR g, with a rate so large that w0 is lost beside LR g: g is exact to the 24 bits of fp32.
"""
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
        return dict(recipe)
    return parse(pathlib.Path(recipe).read_text())


def parse(text):
    try:
        import yaml
    except ImportError:
        raise CleaveError("reading a recipe here needs PyYAML: pip install pyyaml", 2) from None
    return yaml.safe_load(text) or {}


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
