"""State of torch's optimizers, to and from the folder that the recipe's `init: {optimizer: FOLDER}` takes."""
import json
import pathlib
import tempfile

from cleave._tool import CleaveError, run_tool

SCALARS = {"step", "mu_product"}  # functions of the steps done


def save_optimizer(module, optimizer, folder, steps=None):
    """Writes the state of a torch optimizer, or of several, of `module`: a recipe with `init: {optimizer: folder}` goes on
    from there, with the module's weights. steps: done so far, of optimizers that do not count them (SGD, Muon)."""
    from safetensors.torch import save_file
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    kinds, counts = {}, set()
    for one in _listed(optimizer):
        for parameter, state in one.state.items():
            if id(parameter) not in names:
                raise CleaveError("the optimizer has a parameter that the module does not have", 2)
            name = names[id(parameter)]
            if "step" in state:
                counts.add(int(state["step"]))
            for kind, value in state.items():
                if kind in SCALARS or value is None:
                    continue
                if getattr(value, "shape", None) != parameter.shape:
                    raise CleaveError(f"the optimizer's {kind} of {name} has another shape than the parameter, which Cleave does not take", 2)
                kinds.setdefault(kind, {})[name] = value.detach().cpu().contiguous().clone()
    if steps is not None:
        counts.add(steps)
    if len(counts) != 1:
        why = f"has done {' and '.join(map(str, sorted(counts)))} steps" if counts else "does not count its steps: give `steps`"
        raise CleaveError(f"the optimizer {why}", 2)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "optimizer.json").unlink(missing_ok=True)  # of an earlier state, which is not what is written now
    for kind, tensors in kinds.items():
        (folder / f"{kind}.safetensors.index.json").unlink(missing_ok=True)  # of an earlier export
        save_file(tensors, str(folder / f"{kind}.safetensors"))
    (folder / "optimizer.json").write_text(json.dumps({"steps": counts.pop(), "state": sorted(kinds)}))


def load_optimizer(module, optimizer, snapshots, **options):
    """Puts a snapshot's state into a torch optimizer, or several, of `module`. Further keys are flags of `cleave export`."""
    import torch
    from safetensors.torch import load_file
    from cleave.compiling import _flags
    with tempfile.TemporaryDirectory() as folder:
        run_tool("export", snapshots, "--optimizer", "-o", folder, *_flags(options))
        listed = json.loads(pathlib.Path(folder, "optimizer.json").read_text())
        kinds = {kind: _loaded(folder, kind, load_file) for kind in listed["state"]}
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for one in _listed(optimizer):
        counts = not isinstance(one, (torch.optim.SGD, getattr(torch.optim, "Muon", ())))
        for group in one.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter))
                own = {kind: tensors[name].to(parameter.device) for kind, tensors in kinds.items() if name in tensors}
                if not own and kinds:
                    continue
                one.state[parameter].update(own)
                if counts:
                    one.state[parameter]["step"] = torch.tensor(float(listed["steps"]))
                if isinstance(one, torch.optim.NAdam):
                    one.state[parameter]["mu_product"] = torch.tensor(_product(group, listed["steps"]))


def _product(group, steps):
    product = 1.0
    for step in range(1, steps + 1):
        product *= group["betas"][0] * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
    return product


def _loaded(folder, kind, load_file):
    index = pathlib.Path(folder, f"{kind}.safetensors.index.json")
    if not index.exists():
        return load_file(str(pathlib.Path(folder, f"{kind}.safetensors")))
    tensors = {}
    for file in sorted(set(json.loads(index.read_text())["weight_map"].values())):
        tensors.update(load_file(str(pathlib.Path(folder, file))))
    return tensors


def _listed(optimizer):
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
