"""Data with a fault: the arrays of the golden MLP, or token files.

    write_data.py labels|ignored|negative|later FILE    label 11 at sample 5; -100 at 5; -1 at sample 12; 11 at 20
    write_data.py int32|int64 FILE                      tokens below 60, as these numbers
"""
import pathlib
import sys

import numpy as np

kind, file = sys.argv[1:]
rng = np.random.default_rng(5)
if kind.startswith("int"):
    rng.integers(1, 60, 5000).astype(kind).tofile(file)
    sys.exit()
golden = np.load(pathlib.Path(__file__).resolve().parents[2] / "golden" / "data" / "mlp" / "data.npz")
arrays = {name: golden[name] for name in golden.files}
sample, value = {"labels": (5, 11), "ignored": (5, -100), "negative": (12, -1), "later": (20, 11)}[kind]
arrays["labels"] = arrays["labels"].copy()
arrays["labels"].reshape(-1)[sample] = value
np.savez(file, **arrays)
