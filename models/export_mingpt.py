#!/usr/bin/env python3
"""Export minGPT (Karpathy's decoder-only transformer, plain PyTorch) to ONNX. Run by hand; needs torch and onnxscript.

    python export_mingpt.py --layers 4 --heads 4 --width 64 --block 64 --vocab 65 -o mingpt/nano.onnx
    python export_mingpt.py --layers 8 --heads 8 --width 512 --block 128 --vocab 65 --no-weights -o mingpt/8x512.onnx

--no-weights keeps the graph only: the initializers point into a file that is not written, and the recipe's `init` says
how the parameters begin.
"""
import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F

from graph_only import drop_metadata, drop_weights


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = F.softmax(att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf")), dim=-1)
        return self.c_proj((att @ v).transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, block)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, block, vocab):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.h = nn.ModuleList(Block(width, heads, block) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 1))
            else:  # a little noise: exporters merge initializers that are equal
                nn.init.normal_(parameter, mean=1.0 if "ln" in name and name.endswith("weight") else 0.0, std=1e-3)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "heads", "width", "block", "vocab"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--no-weights", action="store_true")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = GPT(args.layers, args.heads, args.width, args.block, args.vocab).train()
    tokens = torch.zeros(2, args.block, dtype=torch.int64)
    torch.onnx.export(model, (tokens,), args.output, input_names=["tokens"], output_names=["logits"], dynamo=True,
                      opset_version=20, external_data=False, dynamic_shapes={"tokens": {0: torch.export.Dim("batch")}})
    drop_metadata(args.output)
    if args.no_weights:
        drop_weights(args.output)


if __name__ == "__main__":
    main()
