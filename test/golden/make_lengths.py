#!/usr/bin/env python3
"""Train on samples of several lengths in PyTorch, each sample by itself, without padding, and record losses and weights.
Run by hand (needs torch and onnx):

    make_lengths.py

One folder of `lengths/` each: model.onnx, recipe.yaml, data.npz or tokens.bin, expected.json (losses and gradient norms of STEPS
steps in doubles) and trained.npz (`trained/NAME`). A step's loss is the mean over all tokens that have a label.
test/cli/lengths.test compares.

    padded      an encoder that is told which positions are tokens
    packed      the same, told by a mask which positions see each other; samples share rows
    documents   a causal decoder; samples end with a token, and long ones are cut
    rows        the same, packed, with a mask of numbers that are added
"""
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import trim_notes

HERE = pathlib.Path(__file__).parent / "lengths"
LENGTHS, BATCH, STEPS, VOCABULARY, WIDTH, HEADS = [4, 8, 16], 4, 5, 13, 8, 2
SEPARATOR = 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask, causal):
        b, t, _ = x.shape
        q, k, v = (y.reshape(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.qkv(self.norm(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    """`form` says which inputs it has beside the tokens."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTHS[-1], WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, mask=None, position_ids=None):
        if self.form == "padded":
            mask = mask[:, None, None, :] != 0
        if position_ids is None:
            position_ids = torch.arange(ids.shape[1], device=ids.device)[None]
        x = self.tokens(ids) + self.positions(position_ids)
        for block in self.blocks:
            x = block(x, mask, self.form == "documents")
        return self.head(x)


class Padded(Net):
    def forward(self, ids, attention_mask):
        return super().forward(ids, attention_mask)


class Masked(Net):
    def forward(self, ids, mask, position_ids):
        return super().forward(ids, mask, position_ids)


class Plain(Net):
    def forward(self, ids):
        return super().forward(ids)


def alone(net, form, ids):
    """The logits of one sample without padding."""
    ids, n = ids[None], len(ids)
    if form == "padded":
        return net(ids, torch.ones_like(ids))
    if form == "packed":
        return net(ids, torch.ones(1, 1, n, n, dtype=torch.bool), torch.arange(n)[None])
    if form == "rows":
        hidden = torch.full((n, n), -torch.inf, dtype=torch.double).triu(1)
        return net(ids, hidden[None, None], torch.arange(n)[None])
    return net(ids)


def rows_of(samples, pack):
    rows, room = [], 0
    for sample in samples:
        if not pack or not rows or len(sample[0]) > room:
            rows.append([])
            room = LENGTHS[-1]
        rows[-1].append(sample)
        room -= len(sample[0])
    return rows


def main():
    random = np.random.default_rng(5)
    for form in ("padded", "packed", "documents", "rows"):
        folder = HERE / form
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(3)
        net = {"padded": Padded, "documents": Plain}.get(form, Masked)(form)
        tokens = form in ("documents", "rows")
        pack = form in ("packed", "rows")
        if tokens:
            counts = [3, 5, 2, 4, 8, 1, 7, 6, 40, 3, 12, 9, 2, 17, 30, 5, 4, 9, 16, 11] * (2 if pack else 1)
            texts = [np.append(random.integers(0, SEPARATOR, count), SEPARATOR) for count in counts]
            np.concatenate(texts).astype(np.uint16).tofile(folder / "tokens.bin")
            samples = [(text[i:i + LENGTHS[-1] + 1][:-1], text[i + 1:i + LENGTHS[-1] + 1])
                       for text in texts for i in range(0, len(text) - 1, LENGTHS[-1])]
        else:
            counts = [3, 4, 2, 1, 8, 5, 3, 7, 16, 2, 9, 12, 1, 2, 3, 4, 6, 6, 8, 1] * (3 if pack else 1)
            samples = [(random.integers(0, VOCABULARY, n), random.integers(0, VOCABULARY, n)) for n in counts]
            labels = np.concatenate([label for _, label in samples])
            labels[::7] = -100
            samples = [(ids, part) for (ids, _), part in zip(samples, np.split(labels, np.cumsum(counts)[:-1]))]
            np.savez(folder / "data.npz", ids=np.concatenate([ids for ids, _ in samples]), labels=labels,
                     offsets=np.concatenate([[0], np.cumsum(counts)]))
        example = (torch.zeros(2, 6, dtype=torch.long),)
        batch, seq = torch.export.Dim("batch"), torch.export.Dim("seq")
        dynamic = {"ids": {0: batch, 1: seq}}
        if form == "padded":
            example += (torch.ones(2, 6, dtype=torch.long),)
            dynamic["attention_mask"] = {0: batch, 1: seq}
        elif pack:
            kind = torch.bool if form == "packed" else torch.float
            example += (torch.ones(2, 1, 6, 6).to(kind), torch.zeros(2, 6, dtype=torch.long))
            dynamic |= {"mask": {0: batch, 2: seq, 3: seq}, "position_ids": {0: batch, 1: seq}}
        program = torch.onnx.export(net.eval(), example, dynamo=True, dynamic_shapes=dynamic)
        trim_notes.trim(program.model_proto)
        (folder / "model.onnx").write_bytes(program.model_proto.SerializeToString())
        data = "{kind: tokens, path: tokens.bin, separator: 12" if tokens else "{kind: arrays, path: data.npz"
        (folder / "recipe.yaml").write_text(
            f"dims: {{batch: {BATCH}, seq: {LENGTHS[-1]}}}\nloss: {{kind: softmax_cross_entropy, ignore_index: -100}}\n"
            "optimizer: {kind: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.1}\nclip_norm: 1.0\n"
            f"data: {data}, shuffle: false, lengths: {LENGTHS}{', pack: true, fill: {mask: mask}' if pack else ''}}}\n")
        net.double()
        rows = rows_of(samples, pack)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        losses, norms, lengths = [], [], []
        for step in range(STEPS):
            part = [rows[i % len(rows)] for i in range(step * BATCH, step * BATCH + BATCH)]
            longest = max(sum(len(ids) for ids, _ in row) for row in part)
            lengths.append(min(n for n in LENGTHS if n >= longest))
            total, count = 0, 0
            for ids, labels in (sample for row in part for sample in row):
                logits = alone(net, form, torch.from_numpy(ids.astype(np.int64)))[0]
                labels = torch.from_numpy(labels.astype(np.int64))
                total = total + F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
                count += int((labels != -100).sum())
            optimizer.zero_grad()
            (total / count).backward()
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 1.0)))
            optimizer.step()
            losses.append(float(total / count))
        (folder / "expected.json").write_text(json.dumps({"loss": losses, "grad_norm": norms, "length": lengths}) + "\n")
        np.savez(folder / "trained.npz",
                 **{f"trained/{name}": value.detach().float().numpy() for name, value in net.named_parameters()})
        print(form, len(rows), "rows", lengths, losses)


if __name__ == "__main__":
    main()
