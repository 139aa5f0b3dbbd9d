"""Data for the recipes of models/ that a model can learn.

    recipe_data.py cifar FOLDER | tokens FOLDER TEXT | pair FILE.npz MODEL.onnx
"""
import pathlib
import sys

import numpy as np

random = np.random.default_rng(0)


def cifar(folder):
    """Images like CIFAR-10's: each class has a blotch of its colour, at a place that varies, in noise."""
    colours = random.integers(60, 255, (10, 3))
    for name, samples in ("data_batch_1", 640), ("test_batch", 320):
        rows = []
        for label in random.integers(0, 10, samples):
            image = random.integers(0, 90, (3, 32, 32))
            y, x = random.integers(2, 16, 2)
            image[:, y:y + 14, x:x + 14] = np.clip(colours[label][:, None, None] + random.integers(-25, 26, (3, 14, 14)), 0, 255)
            rows.append(np.concatenate([[label], image.reshape(-1)]).astype(np.uint8))
        np.stack(rows).tofile(pathlib.Path(folder, f"{name}.bin"))


def tokens(folder, text):
    """The halves of a text as token files of one vocabulary."""
    text = pathlib.Path(text).read_bytes()
    number = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    for name, part in ("prose", text[:len(text) // 2]), ("verse", text[len(text) // 2:]):
        np.array([number[symbol] for symbol in part], np.uint16).tofile(pathlib.Path(folder, f"{name}.bin"))


def pair(file, model):
    """Samples with the class that the teacher says."""
    import onnx.numpy_helper
    weights = {entry.name: onnx.numpy_helper.to_array(entry) for entry in onnx.load(model).graph.initializer}
    x = random.standard_normal((960, 16)).astype(np.float32)
    hidden = np.tanh(x @ weights["teacher.0.weight"].T + weights["teacher.0.bias"])
    labels = (hidden @ weights["teacher.2.weight"].T + weights["teacher.2.bias"]).argmax(1)
    np.savez(file, x=x, labels=labels)


{"cifar": cifar, "tokens": tokens, "pair": pair}[sys.argv[1]](*sys.argv[2:])
