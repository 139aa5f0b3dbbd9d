#!/usr/bin/env python3
"""Compares a run with a recorded training: losses within 1e-4, final parameters within 1e-3 (test/golden's bounds).

    compare_trace.py TRACE.npz METRICS.jsonl TRAINED.safetensors

TRACE holds `losses`, and `final/NAME` of parameters; those that do not train may be missing in TRAINED.
"""
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
from golden import GRADIENT_TOLERANCE, LOSS_TOLERANCE, read_safetensors  # noqa: E402

trace, metrics, trained = sys.argv[1:]
trace, trained = np.load(trace), read_safetensors(pathlib.Path(trained))
losses = [json.loads(line)["loss"] for line in open(metrics) if '"loss"' in line]
assert len(losses) == len(trace["losses"]), (len(losses), len(trace["losses"]))
worst = np.abs(losses / trace["losses"] - 1).max()
assert worst <= LOSS_TOLERANCE, f"losses {losses} instead of {trace['losses'].tolist()}"
finals = {key.removeprefix("final/"): trace[key] for key in trace.files if key.startswith("final/")}
assert set(trained) <= set(finals) and trained, f"parameters {sorted(trained)} instead of {sorted(finals)}"
worst_parameter = 0.0
for name, expected in finals.items():
    if name not in trained:
        continue
    error = np.linalg.norm(trained[name].reshape(expected.shape) - expected) / max(np.linalg.norm(expected), 1e-7)
    assert error <= GRADIENT_TOLERANCE, f"parameter {name} is off by {error:.2e}"
    worst_parameter = max(worst_parameter, error)
print(f"{len(losses)} losses within {worst:.1e}, {len(trained)} of {len(finals)} parameters within {worst_parameter:.1e}")
