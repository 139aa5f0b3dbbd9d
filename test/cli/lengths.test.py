"""lengths.test.py PLAN FOLDER: steps on arrays of two lengths, padded here, have the recipe's data's losses."""
import json
import pathlib
import sys

import numpy as np

import cleave

data = np.load(pathlib.Path(sys.argv[2]) / "data.npz")
expected = json.load(open(pathlib.Path(sys.argv[2]) / "expected.json"))
trainer = cleave.Trainer(sys.argv[1])
for step, length in enumerate(expected["length"]):
    batch = {"ids": np.zeros((4, length), np.int64), "attention_mask": np.zeros((4, length), np.int64),
             "labels": np.full((4, length), -100)}
    for row in range(4):
        begin, end = data["offsets"][4 * step + row:][:2]
        batch["ids"][row, :end - begin], batch["labels"][row, :end - begin] = data["ids"][begin:end], data["labels"][begin:end]
        batch["attention_mask"][row, :end - begin] = 1
    found = trainer.step(batch)
    assert abs(found.loss - expected["loss"][step]) < 1e-5, (step, found.loss, expected["loss"][step])
try:
    trainer.step(batch | {"ids": np.zeros((4, 8), np.int64), "labels": np.zeros((4, 16), np.int64)})
    raise SystemExit("two lengths in one step were taken")
except cleave.CleaveError as error:
    assert "the arrays of a step are of different lengths" in str(error), error
try:
    trainer.step({"ids": np.zeros((4, 5), np.int64)})
    raise SystemExit("a length that is not in the list was taken")
except cleave.CleaveError as error:
    assert "has shape (4, 4) or (4, 8) or (4, 16) in the plan and (4, 5) here" in str(error), error
