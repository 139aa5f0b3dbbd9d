#!/usr/bin/env python3
"""Write the ONNX graph of ResNet-50 (He et al. 2015, table 1), without weights: what plans and speed are tried on.

    python3 models/resnet/make_resnet.py -o resnet50.onnx

Needs nothing but Python. As torchvision has it: the stride of a block is in its 3x3 convolution. Input: images [batch, 3,
224, 224]; output: logits [batch, 1000]. Weights are external tensors of a file that is not written.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import onnx_writer  # noqa: E402


class Graph(onnx_writer.Graph):
    def op(self, kind, name, *inputs, **attributes):
        return super().op(kind, name, inputs, [name + "_output"], **attributes)[0]

    def convolution(self, path, x, inner, outer, kernel, stride):
        pad = kernel // 2
        y = self.op("Conv", path + "/Conv", x, self.weight(path[1:].replace("/", ".") + ".weight", outer, inner, kernel, kernel),
                    kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        names = [self.weight(f"{path[1:].replace('/', '.')}.bn.{part}", outer)
                 for part in ("weight", "bias", "running_mean", "running_var")]
        return self.op("BatchNormalization", path + "/BatchNormalization", y, *names, epsilon=1e-5, momentum=0.9)

    def block(self, path, x, inner, width, stride):
        y = self.op("Relu", path + "/Relu_1", self.convolution(path + "/conv1", x, inner, width, 1, 1))
        y = self.op("Relu", path + "/Relu_2", self.convolution(path + "/conv2", y, width, width, 3, stride))
        y = self.convolution(path + "/conv3", y, width, 4 * width, 1, 1)
        if inner != 4 * width or stride != 1:
            x = self.convolution(path + "/downsample", x, inner, 4 * width, 1, stride)
        return self.op("Relu", path + "/Relu_3", self.op("Add", path + "/Add", y, x))


def resnet50():
    g = Graph("resnet-50")
    x = g.op("Relu", "/stem/Relu", g.convolution("/stem/conv", "images", 3, 64, 7, 2))
    x = g.op("MaxPool", "/stem/MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inner = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for index in range(blocks):
            x = g.block(f"/layer{stage + 1}.{index}", x, inner, width, 2 if stage and index == 0 else 1)
            inner = 4 * width
    x = g.op("Flatten", "/Flatten", g.op("GlobalAveragePool", "/GlobalAveragePool", x), axis=1)
    super(Graph, g).op("Gemm", "/fc/Gemm", [x, g.weight("fc.weight", inner, 1000), g.weight("fc.bias", 1000)], ["logits"])
    return g


def write(path):
    resnet50().write(path, [("images", onnx_writer.FLOAT, ["batch", 3, 224, 224])],
                     [("logits", onnx_writer.FLOAT, ["batch", 1000])], producer="make_resnet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default="resnet50.onnx")
    write(parser.parse_args().output)
