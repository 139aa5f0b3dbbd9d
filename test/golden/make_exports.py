#!/usr/bin/env python3
"""Export small modules with fresh weights by both of PyTorch's exporters, with their state_dict before and after training.
Run by hand (needs torch and onnxscript):

    make_exports.py [NAME ...]

One folder NAME.EXPORTER of `exports/` each: model.onnx, recipe.yaml, data.npz (what it is trained on), state.npz: the
state_dict as `initial/KEY`, and after STEPS steps of SGD in doubles as `trained/KEY`. Fresh weights are what exporters
merge, leave out, fold and transpose: test/cli/export.test reads them back from what `cleave export` writes.
"""
import pathlib
import sys

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).parent
BATCH, STEPS, RATE = 4, 3, 0.5


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p(x).view(b, t, 2, d // 2).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Tied embedding and head; biases zero, norms one, as a language model begins."""

    def __init__(self, vocabulary=40, width=8, positions=6):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList([Block(width), Block(width)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, x):
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Encoder(nn.Module):
    """Layers that begin as copies of one another."""

    def __init__(self, width=8):
        super().__init__()
        self.emb = nn.Embedding(40, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 40)

    def forward(self, x):
        return self.head(self.encoder(self.emb(x)))


class Albert(nn.Module):
    """One layer that runs three times."""

    def __init__(self, width=8):
        super().__init__()
        self.emb, self.layer = nn.Embedding(40, width), Block(width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 40)

    def forward(self, x):
        x = self.emb(x)
        for _ in range(3):
            x = self.layer(x)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self, kind, bidirectional=False):
        super().__init__()
        self.rnn = getattr(nn, kind)(5, 6, 2, batch_first=True, bidirectional=bidirectional)
        self.fc = nn.Linear(12 if bidirectional else 6, 4)

    def forward(self, x):
        return self.fc(self.rnn(x)[0])


class Vision(nn.Module):
    """A scale of each channel, group normalization, PReLU; a buffer, and one that nothing reads."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.act = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.PReLU(4)
        self.gamma = nn.Parameter(torch.full((4,), 0.5))
        self.fc = nn.Linear(4, 5)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 4))
        self.register_buffer("unused", torch.ones(2))

    def forward(self, x):
        x = self.act(self.norm(self.stem(x)))
        return self.fc((x * self.gamma[:, None, None]).mean((2, 3)) * self.scale)


class Folded(nn.Module):
    """BatchNorms that the exporter folds into the layers before them."""

    def __init__(self):
        super().__init__()
        self.c1, self.bn1 = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.c2, self.bn2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 5)
        for norm in (self.bn1, self.bn2):
            nn.init.normal_(norm.bias)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)

    def forward(self, x):
        return self.fc(F.relu(self.bn2(self.c2(F.relu(self.bn1(self.c1(x)))))).mean((2, 3)))


TOKENS, SERIES, IMAGE = (lambda n: torch.randint(0, 40, (n, 6))), (lambda n: torch.randn(n, 6, 5)), (lambda n: torch.randn(n, 3, 6, 6))
MODULES = {"gpt": (Gpt, TOKENS), "encoder": (Encoder, TOKENS), "albert": (Albert, TOKENS),
           "lstm": (lambda: Recurrent("LSTM", True), SERIES), "gru": (lambda: Recurrent("GRU"), SERIES),
           "vision": (Vision, IMAGE), "folded": (Folded, IMAGE)}


def anonymous(path):
    """Take the exporter's stack traces, which name files of this machine, out of a model."""
    model = onnx.load(path)
    for holder in [*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, model.graph]:
        kept = [entry for entry in holder.metadata_props if "stack_trace" not in entry.key]
        del holder.metadata_props[:]
        holder.metadata_props.extend(kept)
    for node in model.graph.node:
        node.doc_string = ""
    onnx.save(model, path)


def export(module, x, path, exporter):
    names = {"input_names": ["x"], "output_names": ["y"]}
    if exporter == "dynamo":
        torch.onnx.export(module, (x,), path, dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},),
                          external_data=False, verbose=False, **names)
    else:
        torch.onnx.export(module, (x,), path, dynamo=False, opset_version=17, dynamic_axes={"x": {0: "batch"}}, **names)
    anonymous(path)


def main(wanted):
    for name, (make, sample) in MODULES.items():
        if wanted and name not in wanted:
            continue
        for exporter in ("dynamo", "torchscript"):
            if name == "folded" and exporter == "torchscript":
                continue  # nothing is left of the BatchNorms there
            torch.manual_seed(0)
            module = make().eval()
            folder = HERE / "exports" / f"{name}.{exporter}"
            folder.mkdir(parents=True, exist_ok=True)
            export(module, sample(2), folder / "model.onnx", exporter)
            state = {f"initial/{key}": value.numpy().copy() for key, value in module.state_dict().items()}
            x = sample(BATCH * STEPS)
            labels = torch.randint(0, module(x[:1]).shape[-1], module(x).shape[:-1])
            np.savez(folder / "data.npz", x=x.numpy(), labels=labels.numpy())
            module.double()
            optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
            for step in range(STEPS):
                part = slice(step * BATCH, (step + 1) * BATCH)
                inputs = x[part] if x.dtype == torch.int64 else x[part].double()
                loss = F.cross_entropy(module(inputs).flatten(0, -2), labels[part].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            state |= {f"trained/{key}": value.float().numpy() if value.is_floating_point() else value.numpy()
                      for key, value in module.state_dict().items()}
            np.savez(folder / "state.npz", **state)
            (folder / "recipe.yaml").write_text(
                f"dims: {{batch: {BATCH}}}\nloss: {{kind: softmax_cross_entropy}}\n"
                f"optimizer: {{kind: sgd, lr: {RATE}}}\ndata: {{kind: arrays, path: data.npz, shuffle: false}}\n")
            print(folder.name, len(module.state_dict()), "entries")


if __name__ == "__main__":
    main(sys.argv[1:])
