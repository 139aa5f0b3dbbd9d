"""Sizes that the mesh does not divide, beside PyTorch's own loop: 13 positions, 5 heads, 11 words, 20 features."""
import copy
import json
import subprocess

import cleave
import torch
from cleave._tool import tool_path
from torch import nn

RECIPE = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "sgd", "lr": 0.5}}
SPLITS = [("cpu:4", "cp=4"), ("cpu:3", "tp=3"), ("cpu:4", "tp=2,cp=2")]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.out, self.head = nn.Embedding(11, 20), nn.Linear(20, 60), nn.Linear(20, 20), nn.Linear(20, 11)

    def forward(self, tokens):
        x = self.words(tokens)
        samples, positions, width = x.shape
        q, k, v = self.qkv(x).reshape(samples, positions, 3, 5, 4).permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(samples, positions, width))
        return self.head(torch.sigmoid(x))


def losses_of_torch(net, tokens, labels):
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.5), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    net, tokens, labels = Net(), torch.randint(0, 11, (8, 13)), torch.randint(0, 11, (8, 13))
    expected = losses_of_torch(copy.deepcopy(net), tokens, labels)
    for precision, tolerance in (("fp32", 1e-6), ("bf16", 1e-3)):
        for cluster, mesh in SPLITS:
            plan = cleave.compile(net, {**RECIPE, "precision": precision}, cluster, example=(tokens[:2],), mesh=mesh)
            told = json.loads(subprocess.run([tool_path(), "report", plan.path, "--format", "json"], capture_output=True, check=True).stdout)
            padded = any(note.startswith("sizes are padded") for note in told["notes"])
            with cleave.Trainer(plan) as trainer:
                arrays = {name: (labels if name == "labels" else tokens).numpy() for name in trainer.inputs}
                losses = [trainer.step(arrays).loss for _ in expected]
            worst = max(abs(a / b - 1) for a, b in zip(losses, expected))
            assert padded and worst < tolerance, (precision, mesh, padded, worst)
    print("padded sizes: as PyTorch")


if __name__ == "__main__":
    main()
