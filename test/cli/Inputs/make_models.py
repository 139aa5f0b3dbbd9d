#!/usr/bin/env python3
"""Small models: three whose values pass over several pipeline stages, one whose gradient hangs on a rounding, one with
a convolution along its sequence.

    make_models.py chain FILE    eight layers of 256 features, 2 MiB of weights
    make_models.py unet FILE     every layer of the way down is read again on the way up; a second input in
                                 the middle and at the end
    make_models.py seq2seq FILE  an encoder whose result every layer of the decoder reads; one embedding for
                                 both sides and the head
    make_models.py kink FILE     what enters its ReLU is zero but for the weights' rounding
    make_models.py waves FILE    a convolution over 8 positions, and a layer for each of them
    make_models.py one_class FILE    an output of one class
    make_models.py image_unet FILE    four levels of convolutions with batch norms, on square images
    make_models.py mixer FILE    layers along 8 positions and along features in turn (an MLP-Mixer's)
"""
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models"))
from onnx_writer import FLOAT, INT64, attribute, chunk, integer, tensor, value_info  # noqa: E402

rng = np.random.default_rng(3)
nodes, weights = [], []


def weight(name, *shape):
    values = rng.standard_normal(shape) * (0.5 if len(shape) == 1 else np.sqrt(1.5 / shape[0]))
    weights.append(tensor(name, FLOAT, shape, chunk(9, values.astype("<f4").tobytes())))
    return name


def add(kind, inputs, output, **attributes):
    node = b"".join(chunk(1, name) for name in inputs) + chunk(2, output) + chunk(3, output) + chunk(4, kind)
    nodes.append(node + b"".join(chunk(5, attribute(*one)) for one in attributes.items()))
    return output


def layer(x, name, size_in, size_out, activation="Tanh"):
    y = add("MatMul", [x, weight(name + ".weight", size_in, size_out)], name + ".product")
    y = add("Add", [y, weight(name + ".bias", size_out)], name + ".sum")
    return add(activation, [y], name) if activation else y


def chain():
    x, size = "x", 256
    for i in range(8):
        x = layer(x, f"layer{i}", size, size)
    add("Identity", [layer(x, "head", size, 8, None)], "y")
    return [("x", FLOAT, ["batch", size])], ("y", ["batch", 8])


def unet():
    x, size, depth, kept = "x", 24, 3, []
    for i in range(depth):
        x = layer(x, f"down{i}", size if i else 16, size)
        kept.append(x)
    x = add("Mul", [layer(x, "middle", size, size), "gate"], "gated")
    for i in reversed(range(depth)):
        x = add("Concat", [x, kept[i]], f"joined{i}", axis=1)
        x = layer(x, f"up{i}", 2 * size, size)
    x = add("Add", [x, "gate"], "shifted")
    add("Identity", [layer(x, "head", size, 4, None)], "y")
    return [("x", FLOAT, ["batch", 16]), ("gate", FLOAT, ["batch", size])], ("y", ["batch", 4])


def image_unet():
    def convolution(x, name, inner, outer, kernel=3):
        y = add("Conv", [x, weight(name + ".weight", outer, inner, kernel, kernel)], name + ".conv",
                kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)
        statistics = [weight(f"{name}.{part}", outer) for part in ("scale", "shift", "mean", "variance")]
        return add("Relu", [add("BatchNormalization", [y, *statistics], name + ".norm")], name)

    x, inner, skipped = "x", 3, []
    for level, width in enumerate((2, 4, 8, 16)):
        x, inner = convolution(convolution(x, f"down{level}.0", inner, width), f"down{level}.1", width, width), width
        if level < 3:
            skipped.append((x, width))
            x = add("MaxPool", [x], f"pool{level}", kernel_shape=[2, 2], strides=[2, 2])
    for level, (skip, width) in reversed(list(enumerate(skipped))):
        x = add("ConvTranspose", [x, weight(f"up{level}.weight", inner, width, 2, 2)], f"up{level}",
                kernel_shape=[2, 2], strides=[2, 2])
        x = add("Concat", [skip, x], f"join{level}", axis=1)
        x, inner = convolution(convolution(x, f"out{level}.0", 2 * width, width), f"out{level}.1", width, width), width
    add("Conv", [x, weight("head.weight", 4, inner, 1, 1)], "y", kernel_shape=[1, 1])
    return [("x", FLOAT, ["batch", 3, 64, 64])], ("y", ["batch", 4, 64, 64])


def seq2seq():
    vocabulary, size, length = 19, 16, 6
    table = weight("embedding", vocabulary, size)
    memory = add("Gather", [table, "source"], "source.embedded", axis=0)
    for i in range(2):
        memory = layer(memory, f"encoder{i}", size, size)
    transposed = add("Transpose", [memory], "memory.transposed", perm=[0, 2, 1])
    x = add("Gather", [table, "target"], "target.embedded", axis=0)
    for i in range(3):
        scores = add("Softmax", [add("MatMul", [x, transposed], f"decoder{i}.scores")], f"decoder{i}.weights", axis=-1)
        x = add("Add", [x, add("MatMul", [scores, memory], f"decoder{i}.read")], f"decoder{i}.joined")
        x = add("Add", [x, layer(x, f"decoder{i}", size, size)], f"decoder{i}.out")
    add("MatMul", [x, add("Transpose", [table], "head.weight", perm=[1, 0])], "y")
    inputs = [(name, INT64, ["batch", length]) for name in ("source", "target")]
    return inputs, ("y", ["batch", length, vocabulary])


def kink():
    rows = rng.standard_normal((3, 16)).astype(np.float32)
    rows[2] = -(rows[0] + rows[1])
    weights.append(tensor("cancel", FLOAT, (3, 16), chunk(9, rows.astype("<f4").tobytes())))
    x = add("Relu", [add("MatMul", [add("Concat", ["x", "x", "x"], "thrice", axis=1), "cancel"], "nothing")], "active")
    add("Identity", [layer(x, "head", 16, 4, None)], "y")
    return [("x", FLOAT, ["batch", 1])], ("y", ["batch", 4])


def one_class():
    add("Identity", [layer("x", "head", 16, 1, None)], "y")
    return [("x", FLOAT, ["batch", 16])], ("y", ["batch", 1])


def waves():
    x = add("Conv", ["x", weight("filter", 8, 8, 3)], "convolved", pads=[1, 1])
    add("Identity", [layer(add("Transpose", [x], "positions", perm=[0, 2, 1]), "head", 8, 4, None)], "y")
    return [("x", FLOAT, ["batch", 8, 8])], ("y", ["batch", 8, 4])


def mixer():
    x = layer("x", "enter", 6, 8, "Relu")
    along = add("Transpose", [x], "turned", perm=[0, 2, 1])
    x = add("Add", [x, add("Transpose", [layer(along, "tokens", 8, 8, "Relu")], "back", perm=[0, 2, 1])], "mixed")
    add("Identity", [layer(x, "head", 8, 4, None)], "y")
    return [("x", FLOAT, ["batch", 8, 6])], ("y", ["batch", 8, 4])


def main():
    models = {"chain": chain, "unet": unet, "seq2seq": seq2seq, "kink": kink, "one_class": one_class,
              "waves": waves, "mixer": mixer, "image_unet": image_unet}
    inputs, (output, shape) = models[sys.argv[1]]()
    graph = b"".join(chunk(1, node) for node in nodes) + chunk(2, sys.argv[1])
    graph += b"".join(chunk(5, one) for one in weights) + b"".join(chunk(11, value_info(*one)) for one in inputs)
    graph += chunk(12, value_info(output, FLOAT, shape))
    opset = chunk(1, "") + integer(2, 18)
    pathlib.Path(sys.argv[2]).write_bytes(integer(1, 9) + chunk(7, graph) + chunk(8, opset))


main()
