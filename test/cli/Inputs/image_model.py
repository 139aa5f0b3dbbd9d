#!/usr/bin/env python3
"""A linear classifier of images, without weights: every pixel counts.

    image_model.py CHANNELS HEIGHT WIDTH CLASSES FILE [uint8] [deep]

deep: with a hidden layer, so that it can be cut into stages.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models"))
from onnx_writer import FLOAT, Graph  # noqa: E402

UINT8 = 2
channels, height, width, classes = map(int, sys.argv[1:5])
graph = Graph("images")
raw, deep = "uint8" in sys.argv[6:], "deep" in sys.argv[6:]
x = graph.op("Cast", "cast", ["x"], ["floats"], to=FLOAT)[0] if raw else "x"
graph.op("Flatten", "flatten", [x], ["flat"], axis=1)
pixels = channels * height * width
if deep:
    graph.op("MatMul", "first", ["flat", graph.weight("body", pixels, 8)], ["sums"])
    graph.op("Tanh", "tanh", ["sums"], ["hidden"])
graph.op("MatMul", "product", ["hidden" if deep else "flat", graph.weight("head", 8 if deep else pixels, classes)], ["logits"])
graph.write(sys.argv[5], [("x", UINT8 if raw else FLOAT, ["batch", channels, height, width])],
            [("logits", FLOAT, ["batch", classes])])
