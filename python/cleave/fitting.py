"""Training a torch module on the batches of a loader, in one call."""
import contextlib
import inspect
import itertools
import pathlib
import tempfile

import numpy as np

from cleave import stores
from cleave._tool import CleaveError
from cleave.check.recipes import plain
from cleave.compiling import compile
from cleave.training import Trainer, load_into


def fit(module, loader, recipe, cluster="cpu:1", *, epochs=1, labels="labels", callbacks=(), snapshots=None, resume=False,
        overwrite=False, local_batches=False, **options):
    """Trains `module` on the batches of `loader`, such as a torch DataLoader, and loads the weights back into it.

    A batch is (inputs..., labels), or a dictionary of keyword inputs with `labels` among them, of tensors or NumPy arrays; where
    the module computes the loss (kind: output), all of it are inputs. All batches have one size, which is `dims.batch` unless the
    recipe has it; one of fewer samples, as the last of a DataLoader, trains where Trainer.step can take it.
    Under mpirun, srun or torchrun each process calls fit with equal arguments; with local_batches its loader gives its own part of
    each batch (Trainer.rank_samples), `dims.batch` is the global batch, and `snapshots` a folder that all of them see.
    callbacks: one or a list, each called as callback(trainer, metrics) after each step; the training ends where one returns True.
    snapshots, resume, overwrite: as of Trainer; the last state is saved. Further keys are those of `compile`. Returns the steps'
    Metrics.
    """
    from cleave.export.example import Example
    recipe = plain(recipe) if isinstance(recipe, dict) else recipe
    loss = recipe.get("loss") if isinstance(recipe, dict) else None
    callbacks = [callbacks] if callable(callbacks) else callbacks
    if isinstance(loss, list):
        raise CleaveError("fit takes a recipe of one loss; a Trainer takes the labels of several", 2)
    own_loss = bool(loss) and loss.get("kind") == "output"
    label = None if own_loss else labels
    batches = iter(loader)
    first = next(batches, None)
    if first is None:
        raise CleaveError("the loader has no batch", 2)
    inputs, _ = _parts(first, label)
    leaves = _leaves(module, inputs)
    names = Example(inputs).names(module)
    if isinstance(recipe, dict):
        batch = next((tensor.shape[0] for tensor in leaves if tensor.dim() > 0), 1)
        if local_batches and "batch" not in (recipe.get("dims") or {}):
            raise CleaveError("fit with local_batches needs the global batch in the recipe: dims: {batch: N}", 2)
        recipe = {**recipe, "dims": {"batch": batch, **(recipe.get("dims") or {})}}
    history = []
    with contextlib.ExitStack() as stack:
        folder = snapshots or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cleave-")), "snapshots")
        plan = compile(module, recipe, cluster, example=inputs if isinstance(inputs, dict) else tuple(inputs), **options)
        trainer = stack.enter_context(Trainer(plan, snapshots=folder, resume=resume, overwrite=overwrite, local_batches=local_batches))
        try:
            _train(trainer, module, names, itertools.chain([first], batches), loader, epochs, label, callbacks, history)
        finally:  # of a training that fails, too, what it has come to
            if history:
                trainer.save()
                load_into(module, snapshots if stores.is_url(snapshots) else trainer.snapshots)
        trainer._agree(None)  # the other processes have read the model that this one exported, which goes with it
    return history


def _train(trainer, module, names, batches, loader, epochs, label, callbacks, history):
    for epoch in range(epochs):
        before = len(history)
        for batch in batches if epoch == 0 else loader:
            if not _step(trainer, module, names, batch, label, callbacks, history):
                return
        if len(history) == before:
            raise CleaveError(f"the loader gives no batch in epoch {epoch + 1}: an iterator can be gone through once", 2)


def _step(trainer, module, names, batch, label, callbacks, history):
    """False where a callback ends the training."""
    inputs, target = _parts(batch, label)
    arrays = {**dict(zip(names, _leaves(module, inputs))), **({} if target is None else {label: target})}
    try:
        history.append(trainer.step({name: array for name, array in arrays.items() if name in trainer.inputs}))
    except CleaveError as error:
        if "a step of fewer samples cannot be" not in str(error):
            raise
        raise CleaveError(f"{error}; DataLoader's drop_last=True leaves an unfilled last batch out", 2) from None
    return not any([callback(trainer, history[-1]) for callback in callbacks])


def _tensor(value):
    import torch
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def _parts(batch, label):
    """(inputs, labels) of a batch; `label`: the name of the labels, or None where all of the batch are inputs."""
    if isinstance(batch, dict):
        if label is not None and label not in batch:
            raise CleaveError(f"a batch of the loader has no {label!r}; it has {', '.join(batch)}", 2)
        return {key: _tensor(value) for key, value in batch.items() if key != label}, _tensor(batch.get(label))
    parts = [_tensor(part) for part in batch] if isinstance(batch, (list, tuple)) else [batch]
    if label is not None and len(parts) < 2:
        raise CleaveError("a batch of the loader is one tensor: give (inputs, labels), or a dictionary with the labels", 2)
    return (parts, None) if label is None else (parts[:-1], parts[-1])


def _leaves(module, inputs):
    """The tensors of `inputs` in the order of forward's parameters."""
    import torch
    from torch.utils import _pytree as pytree
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise CleaveError(f"a batch of the loader does not fit {type(module).__name__}.forward: {error}", 2) from None
    return [leaf.detach() for leaf in pytree.tree_leaves(list(bound.values())) if isinstance(leaf, torch.Tensor)]
