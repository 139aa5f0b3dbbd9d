#!/usr/bin/env python3
"""Export a tiny Switch Transformer of transformers, train it in PyTorch in doubles, and record cases/switch_transformers. Run by
hand (needs torch, transformers, onnx, onnxscript, and the cleave module):

    make_switch.py

Encoder and decoder have a dense layer and a sparse one each. An expert takes two tokens of a sequence, so that its router
drops tokens. PyTorch leaves an expert that no token chooses without a gradient; here it gets zeros, as a stacked weight does.
"""
import json
import pathlib

import cleave
import numpy as np
import onnx
import torch
import transformers
from torch.nn import functional as F

import trim_notes

FOLDER = pathlib.Path(__file__).parent / "cases" / "switch_transformers"
BATCH, STEPS, WORDS, LENGTHS = 4, 5, 61, {"input_ids": 9, "decoder_input_ids": 7}
RECIPE = """dims: {batch: 4}
loss: {kind: softmax_cross_entropy}
optimizer: {kind: adamw, lr: 0.001, weight_decay: 0.01}
data: {kind: arrays, path: data.npz, shuffle: false}
"""


class TeacherForced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.SwitchTransformersForConditionalGeneration(transformers.SwitchTransformersConfig(
            vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=2,
            num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_experts=4, expert_capacity=2, router_jitter_noise=0.0,
            dropout_rate=0.0, relative_attention_num_buckets=8, relative_attention_max_distance=16, use_cache=False))

    def forward(self, input_ids, decoder_input_ids):
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids).logits


def trained(module, data):
    """The losses and gradient norms of the steps."""
    module, losses, norms = module.double().train(), [], []
    for part in module.modules():
        if type(part).__name__.endswith("Router"):
            part.dtype = torch.float64
    optimizer = torch.optim.AdamW(module.parameters(), 0.001, weight_decay=0.01)
    for step in range(STEPS):
        ids = {name: values[step * BATCH:(step + 1) * BATCH] for name, values in data.items()}
        labels = ids.pop("labels")
        optimizer.zero_grad()
        loss = F.cross_entropy(module(**ids).flatten(0, 1), labels.flatten())
        loss.backward()
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        norms.append(torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in module.parameters()])).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def main():
    torch.manual_seed(0)
    module = TeacherForced()
    data = {name: torch.randint(1, WORDS, (STEPS * BATCH, length)) for name, length in LENGTHS.items()}
    data["labels"] = torch.randint(WORDS, (STEPS * BATCH, LENGTHS["decoder_input_ids"]))
    FOLDER.mkdir(exist_ok=True)
    cleave.export(module, {name: data[name][:BATCH] for name in LENGTHS}, FOLDER / "model.onnx")
    model = onnx.load(FOLDER / "model.onnx")
    trim_notes.trim(model)
    onnx.save(model, FOLDER / "model.onnx")
    losses, norms = trained(module, data)
    np.savez_compressed(FOLDER / "data.npz", **{name: values.numpy() for name, values in data.items()})
    (FOLDER / "recipe.yaml").write_text(RECIPE)
    splits = ["one", "ep2", "ep4", "ep2tp2", "pp2ep2"]
    (FOLDER / "expected.json").write_text(json.dumps({"steps": STEPS, "loss": losses, "grad_norm": norms, "tol": 1e-6, "splits": splits},
                                                     indent=1) + "\n")


if __name__ == "__main__":
    main()
