"""Cleave from Python: choose the split of a model's training, and train it.

    import cleave
    plan = cleave.compile("model.onnx", {"dims": {"batch": 32}, "loss": {"kind": "softmax_cross_entropy"}}, cluster="cpu:4")
    print(plan.report())
    trainer = cleave.Trainer(plan, snapshots="snapshots")
    metrics = trainer.step({"x": x, "labels": labels})
    trainer.save()

Needs NumPy. `compile` and `estimate` start the command `cleave`; `Trainer` runs in this process, by the C library.
"""
from cleave._tool import CleaveError, tool_path
from cleave.arrow_batches import batches
from cleave.callbacks import EarlyStopping, PrometheusServer
from cleave.check import ImportCheck, ImportMismatch, check_import
from cleave.compiling import Plan, compile, estimate
from cleave.export import export, without_weights
from cleave.fitting import fit
from cleave.optimizer_state import save_optimizer
from cleave.reports import Comparison, Report
from cleave.training import Metrics, Trainer, load_into

__all__ = ["CleaveError", "Comparison", "EarlyStopping", "ImportCheck", "ImportMismatch", "Metrics", "Plan", "PrometheusServer",
           "Report", "Trainer", "batches", "check_import", "compile", "estimate", "export", "fit", "load_into", "save_optimizer", "tool_path",
           "without_weights"]
