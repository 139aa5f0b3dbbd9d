#!/usr/bin/env python3
"""Export a student and its frozen teacher as one graph to ONNX. Run by hand; needs torch, onnxscript and cleave.

    python export_distillation.py -o distillation/pair.onnx

Outputs: the student's logits, its log probabilities and the teacher's probabilities at temperature 2.
"""
import argparse

import cleave
import torch
from torch import nn
from torch.nn import functional as F

from graph_only import drop_metadata


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 8))
        self.student = nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 8))
        for weight in self.teacher.parameters():  # as if it had learnt something
            nn.init.normal_(weight)

    def forward(self, x):
        logits = self.student(x)
        return logits, F.log_softmax(logits / 2, -1), F.softmax(self.teacher(x) / 2, -1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    cleave.export(Pair(), torch.zeros(2, 16), args.output, input_names=["x"], output_names=["logits", "soft", "teacher"])
    drop_metadata(args.output)
