"""Python objects named on a command line: FILE.py:NAME, such as `net.py:build`."""
import importlib.util
import pathlib
import sys

from cleave._tool import CleaveError


def load(text):
    """The object NAME of FILE.py. The file's folder is importable meanwhile, as if the file were started."""
    file, _, name = text.rpartition(":")
    if not file or not name:
        raise CleaveError(f"{text}: write FILE.py:NAME", 2)
    path = pathlib.Path(file)
    if not path.exists():
        raise CleaveError(f"{file}: no such file", 1)
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    if not hasattr(found, name):
        raise CleaveError(f"{file} has no {name!r}", 1)
    return getattr(found, name)


def module_and_example(factory, example=None):
    """(module, example) of a FACTORY, which returns both, or of one that returns a module and of the example's own name. The
    example is None where neither gives one."""
    import torch
    made = load(factory)
    made = made() if callable(made) and not isinstance(made, torch.nn.Module) else made
    module, found = made if isinstance(made, tuple) else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise CleaveError(f"{factory} gives {type(module).__name__}, not a torch.nn.Module", 1)
    if example is not None:
        found = load(example)
        found = found() if callable(found) else found
    return module, found
