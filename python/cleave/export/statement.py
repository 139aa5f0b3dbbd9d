"""The module's statement: what every parameter and buffer is, and where the graph holds it.

It is written into the model's metadata under `cleave.module`, as JSON; docs/reference/models.md has its keys. An entry:

    {"name": "fc.weight", "kind": "parameter", "requires_grad": true, "shape": [5, 64], "dtype": "float32",
     "held": [{"initializer": "fc.weight", "form": "as_is"}]}
"""
import json

import torch
from torch import nn

KEY = "cleave.module"


def named_tensors(module):
    """Every parameter and buffer by its full names, in the order of the state_dict; non-persistent buffers last."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    everything = {**parameters, **dict(module.named_buffers(remove_duplicate=False))}
    order = [name for name in module.state_dict(keep_vars=True) if name in everything]
    order += [name for name in everything if name not in set(order) and name in parameters]
    return {name: everything[name] for name in [*order, *(name for name in everything if name not in set(order))]}


def identity(tensor):
    """Equal for tensors that are one storage, on the meta device, too."""
    if not tensor.numel():
        return id(tensor)
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def ties(tensors):
    """{later name: first name} of tensors that are one storage."""
    first, tied = {}, {}
    for name, tensor in tensors.items():
        if identity(tensor) in first:
            tied[name] = first[identity(tensor)]
        else:
            first[identity(tensor)] = name
    return tied


def _paddings(module):
    return {f"{name}.weight".lstrip("."): part.padding_idx for name, part in module.named_modules(remove_duplicate=False)
            if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.padding_idx is not None}


def make(module, tensors, held, norms, dropouts, lost, remarks, exporter, batches, changed):
    """The statement as a dictionary. `held`: places by name; `norms`: (name, norm) at export; `dropouts`: active ratios;
    `lost`: where the graph has other gradients; `batches`: the sizes that it is right for (batch_sizes.py), None for all;
    `changed`: buffers that forward changes and nothing reads."""
    tied, paddings = ties(tensors), _paddings(module)
    persistent = set(module.state_dict(keep_vars=True))
    entries = []
    for name, tensor in tensors.items():
        parameter = isinstance(tensor, nn.Parameter)
        entry = {"name": name, "kind": "parameter" if parameter else "buffer"}
        if parameter:
            entry["requires_grad"] = tensor.requires_grad
        else:
            entry["persistent"] = name in persistent
        entry.update(shape=list(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
        if name in tied:
            entry["tied_to"] = tied[name]
        if name in paddings:
            padding = paddings[name]
            entry["padding_idx"] = padding if padding >= 0 else padding + tensor.shape[0]
        if name in changed or tied.get(name) in changed:
            entry["changes"] = True
        entry["held"] = held.get(name, [])
        if not parameter and not entry["held"] and tensor.numel() == 1 and not tensor.is_meta:
            entry["initial"] = tensor.item()  # a count of batches, which the graph has not
        entries.append(entry)
    return {"version": 1, "exporter": f"torch {torch.__version__.partition('+')[0]}, {exporter}", "tensors": entries,
            "norms": [{"module": name, "kind": type(norm).__name__, "training": norm.training} for name, norm in norms],
            "dropouts": [round(ratio, 7) for ratio in dropouts], "lost": list(lost), "remarks": list(remarks),
            **({} if batches is None else {"batches": batches})}


def write(model, statement):
    """Puts the statement into a ModelProto's metadata."""
    kept = [entry for entry in model.metadata_props if entry.key != KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(statement)


def read(model):
    """The statement of a ModelProto, or None."""
    return next((json.loads(entry.value) for entry in model.metadata_props if entry.key == KEY), None)
