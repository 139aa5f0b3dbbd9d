#!/usr/bin/env python3
"""make.py [CASE...] [--exporters=dynamo,torchscript]: exports cases into cases/NAME.EXPORTER/

model.onnx, recipe.yaml, data.npz, expected.json (PyTorch's losses and gradient norms in float64, keys and shapes of the state_dict)
and probe.npz (what the trained module makes of the first batch). NAME@fresh is NAME as PyTorch initializes it (only when named),
NAME@fresh-unoptimized that with optimize=False.
"""
import copy
import json
import logging
import pathlib
import sys
import time
import traceback

import numpy as np
import torch
import yaml

import models
from case import BATCH, SAMPLES, loss_of, module_of

ROOT = pathlib.Path(__file__).resolve().parent / "cases"
STEPS = 5
torch.set_num_threads(1)
torch.backends.mha.set_fastpath_enabled(False)  # one operator of its own that no exporter knows
logging.disable(logging.WARNING)


def optimizer_of(case, exporter):
    # Behind a BatchNorm in train mode gradients of some biases are zero but for rounding, which AdamW makes steps of.
    if exporter == "dynamo" and not case.train:
        return {"kind": "adamw", "lr": 0.002, "weight_decay": 0.05}
    return {"kind": "sgd", "lr": case.lr, "momentum": 0.9, "weight_decay": 0.01}


def export(case, exporter, module, inputs, path):
    batch = {k: torch.from_numpy(v[:BATCH]) for k, v in inputs.items()}
    args, names = tuple(batch.values()), list(batch)
    out = ["loss" if case.loss["kind"] == "output" else "output"]
    if exporter == "dynamo":
        shapes = None if case.fixed else tuple({0: torch.export.Dim("batch")} for _ in args)
        more = {} if case.opset is None else {"opset_version": case.opset}
        torch.onnx.export(module, args, path, dynamo=True, input_names=names, output_names=out, dynamic_shapes=shapes,
                          optimize=case.optimize, verbose=False, external_data=False, **more)
        return
    axes = None if case.fixed else {k: {0: "batch"} for k in names}
    mode = torch.onnx.TrainingMode.TRAINING if case.train else torch.onnx.TrainingMode.EVAL
    if not case.train and case.batch_norm == "frozen":
        mode = torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(module, args, path, dynamo=False, input_names=names, output_names=out, dynamic_axes=axes, training=mode,
                      do_constant_folding=case.optimize, opset_version=case.opset or 17)


def train(case, module, inputs, labels, optimizer):
    """Losses and gradient norms of the recipe's optimizer in float64."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if optimizer["kind"] == "adamw":
        step = torch.optim.AdamW(parameters, lr=optimizer["lr"], weight_decay=optimizer["weight_decay"])
    else:
        step = torch.optim.SGD(parameters, lr=optimizer["lr"], momentum=optimizer["momentum"], weight_decay=optimizer["weight_decay"])
    kind = parameters[0].dtype
    wide = lambda a: torch.from_numpy(a).to(kind) if a.dtype == np.float32 else torch.from_numpy(a)
    losses, norms, unused = [], [], set()
    for i in range(STEPS):
        at = slice(i % 2 * BATCH, (i % 2 + 1) * BATCH)
        step.zero_grad()
        out = module(*[wide(v[at]) for v in inputs.values()])
        loss = loss_of(case, out, None if labels is None else wide(labels[at]))
        loss.backward()
        unused = {n for n, p in module.named_parameters() if p.grad is None}
        losses.append(loss.item())
        norms.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]).norm().item())
        step.step()
    return losses, norms, sorted(unused)


def make(case, exporter):
    folder = ROOT / f"{case.name}.{exporter}"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    inputs = case.inputs(rng, SAMPLES)
    labels = case.labels(rng, SAMPLES, inputs) if case.labels else None
    module = module_of(case)
    optimizer = optimizer_of(case, exporter)

    (folder / "model.onnx").unlink(missing_ok=True)
    exported = copy.deepcopy(module)
    with torch.no_grad() if exporter == "torchscript" else torch.enable_grad():
        export(case, exporter, exported, inputs, str(folder / "model.onnx"))
    if exporter == "torchscript" and case.train:
        module.load_state_dict(exported.state_dict())  # tracing has moved the running statistics, and the file has them so

    double = copy.deepcopy(module).double()
    losses, norms, unused = train(case, double, inputs, labels, optimizer)
    wide = not np.isnan(losses).any()
    if not wide:  # transformers' masks overflow in float64
        double = copy.deepcopy(module)
        losses, norms, unused = train(case, double, inputs, labels, optimizer)
    double.eval()
    with torch.no_grad():
        kind = torch.float64 if wide else torch.float32
        probe = double(*[torch.from_numpy(v[:BATCH]).to(kind) if v.dtype == np.float32 else torch.from_numpy(v[:BATCH]) for v in inputs.values()])
    np.savez(folder / "probe.npz", output=probe.numpy())

    data = dict(inputs)
    if labels is not None:
        data["labels"] = labels
    np.savez(folder / "data.npz", **data)
    recipe = {"dims": {"batch": BATCH}, "loss": case.loss, "optimizer": optimizer, "data": {"kind": "arrays", "path": "data.npz", "shuffle": False}}
    for key in ("batch_norm", "trainable", "ties"):
        if getattr(case, key):
            recipe[key] = getattr(case, key)
    if exporter == "torchscript":
        recipe.update(case.torchscript)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    (folder / "expected.json").write_text(json.dumps({
        "steps": STEPS, "loss": losses, "grad_norm": norms, "coupled": case.coupled, "float64": wide, "unused": unused, "known": case.known.get(exporter),
        "state_dict": {k: list(v.shape) for k, v in module.state_dict().items()}}, indent=1))


def main():
    exporters, names = ["dynamo", "torchscript"], []
    for a in sys.argv[1:]:
        if a.startswith("--exporters="):
            exporters = a.split("=", 1)[1].split(",")
        else:
            names.append(a)
    cases = models.all_cases()
    for name in names or [n for n in cases if "@" not in n]:
        for exporter in exporters:
            start = time.time()
            try:
                make(cases[name], exporter)
                verdict = "made"
            except Exception as e:
                verdict = f"NOT EXPORTED {type(e).__name__}: {str(e).strip()[:300]!r}"
                (ROOT / f"{name}.{exporter}").mkdir(parents=True, exist_ok=True)
                (ROOT / f"{name}.{exporter}" / "error.txt").write_text(traceback.format_exc())
            print(f"{name:26}{exporter:12}{verdict} [{time.time() - start:.1f}s]", flush=True)


if __name__ == "__main__":
    main()
