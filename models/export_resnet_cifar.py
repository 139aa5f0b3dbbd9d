#!/usr/bin/env python3
"""Export a ResNet for CIFAR-10 (He et al. 2015, section 4.2: 6n+2 layers) to ONNX. Run by hand; needs torch, onnxscript.

    python export_resnet_cifar.py --n 1 --width 8 -o resnet_cifar/resnet8.onnx

`optimize=False` keeps BatchNormalization as nodes of their own; the recipe says `batch_norm: training`.
"""
import argparse

import torch
from torch import nn
from torch.nn import functional as F

from graph_only import drop_metadata


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.bn2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.project = nn.Conv2d(inner, outer, 1, stride, bias=False) if stride != 1 or inner != outer else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.project(x))


class ResNet(nn.Module):
    def __init__(self, n, width):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        blocks, inner = [], width
        for stage in range(3):
            for k in range(n):
                outer = width << stage
                blocks.append(Block(inner, outer, 2 if stage and k == 0 else 1))
                inner = outer
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(inner, 10)
        for module in self.modules():  # a little noise: exporters merge initializers that are equal
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 1e-2)
                nn.init.normal_(module.bias, 0.0, 1e-2)

    def forward(self, x):
        x = self.blocks(F.relu(self.bn(self.conv(x))))
        return self.fc(x.mean(dim=(2, 3)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.onnx.export(ResNet(args.n, args.width).train(), (torch.zeros(2, 3, 32, 32),), args.output,
                      input_names=["input"], output_names=["logits"], dynamo=True, opset_version=20, optimize=False,
                      external_data=False, dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    drop_metadata(args.output)
