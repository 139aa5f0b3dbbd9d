#!/usr/bin/env python3
"""Layers of experts: as a file for Cleave, and as PyTorch trains them.

    experts.py export PATH        looked-up weights and batched products, as transformers' batched_mm writes them
    experts.py train STEPS        a loop over the experts, each of which takes its own tokens; prints seconds, one step a line
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, INNER, EXPERTS, CHOSEN, LAYERS, WORDS, BATCH, LENGTH = 256, 1024, 8, 2, 2, 1000, 8, 128


class Experts(nn.Module):
    def __init__(self, loops):
        super().__init__()
        self.loops, self.norm, self.router = loops, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, 2 * INNER, WIDTH) * 0.02)
        self.down = nn.Parameter(torch.randn(EXPERTS, WIDTH, INNER) * 0.02)

    def forward(self, x):
        tokens = self.norm(x).reshape(-1, WIDTH)
        weight, index = torch.topk(self.router(tokens).softmax(-1), CHOSEN, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        y = self.in_a_loop(tokens, weight, index) if self.loops else self.looked_up(tokens, weight, index)
        return x + y.reshape(x.shape)

    def looked_up(self, tokens, weight, index):
        experts = index.reshape(-1)
        rows = tokens.unsqueeze(1).expand(-1, CHOSEN, -1).reshape(-1, WIDTH, 1)
        gate, up = torch.bmm(self.gate_up[experts], rows).squeeze(-1).chunk(2, -1)
        y = torch.bmm(self.down[experts], (F.silu(gate) * up).unsqueeze(-1)).squeeze(-1) * weight.reshape(-1, 1)
        return y.reshape(-1, CHOSEN, WIDTH).sum(1)

    def in_a_loop(self, tokens, weight, index):
        y = torch.zeros_like(tokens)
        for expert in range(EXPERTS):
            row, choice = torch.where(index == expert)
            gate, up = F.linear(tokens[row], self.gate_up[expert]).chunk(2, -1)
            y.index_add_(0, row, F.linear(F.silu(gate) * up, self.down[expert]) * weight[row, choice, None])
        return y


class Model(nn.Module):
    def __init__(self, loops):
        super().__init__()
        self.embed, self.layers = nn.Embedding(WORDS, WIDTH), nn.Sequential(*(Experts(loops) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids)))


def main(what, argument):
    torch.manual_seed(0)
    ids, labels = (torch.randint(0, WORDS, (BATCH, LENGTH)) for _ in range(2))
    if what == "export":
        import cleave
        return cleave.export(Model(loops=False), ids, argument)
    model = Model(loops=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(int(argument)):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(ids).flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        print(time.perf_counter() - start, flush=True)


main(*sys.argv[1:])
