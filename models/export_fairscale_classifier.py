#!/usr/bin/env python3
"""Export the classifier of FairScale's pipeline tutorial (15 M parameters, 3x32x32 images, ten outputs) to ONNX.

    python export_fairscale_classifier.py -o fairscale_classifier/classifier.onnx        run by hand; needs torch, onnxscript

Only the graph is kept: the weights begin as the recipe's `init` says. The softmax output is trained with bce against
one-hot rows, as the tutorial does.
"""
import argparse

import torch
from torch import nn

from graph_only import drop_metadata, drop_weights


def classifier():
    features = [nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                nn.MaxPool2d(2, 1), nn.Conv2d(64, 128, 2, 2, 1), nn.ReLU(), nn.MaxPool2d(2, 1)]
    head = [nn.Flatten(), nn.Linear(1152, 4096), nn.ReLU(), nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 1024),
            nn.ReLU(), nn.Linear(1024, 10), nn.Softmax(dim=1)]
    return nn.Sequential(*features, *head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", required=True)
    output = parser.parse_args().output
    torch.manual_seed(0)
    torch.onnx.export(classifier().train(), (torch.zeros(2, 3, 32, 32),), output, input_names=["input"],
                      output_names=["probs"], dynamo=True, opset_version=20, external_data=False,
                      dynamic_shapes=({0: torch.export.Dim("batch")},))
    drop_metadata(output)
    drop_weights(output)
