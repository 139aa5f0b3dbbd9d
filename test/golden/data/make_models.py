#!/usr/bin/env python3
"""Export small models of kinds that the other folders lack, with PyTorch's losses: recurrent, U-Net, experts,
encoder and decoder, two optimizers. Run by hand (needs torch and onnxscript), one folder a model:

    make_models.py [NAME ...]

Losses and gradient norms are those of the same training in doubles; the initial weights are perturbed, because exporters
merge equal initializers.
"""
import copy
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import compact_json  # noqa: E402

HERE = pathlib.Path(__file__).parent
BATCH, STEPS = 8, 5


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.cells = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, 50)

    def forward(self, tokens):
        return self.head(self.cells(self.embed(tokens))[0])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.down2, self.norm2 = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16)
        self.middle = nn.Conv2d(16, 16, 3, padding=1)
        self.up, self.join = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, image):
        a = F.silu(self.norm1(self.down1(image)))
        b = F.silu(self.norm2(self.down2(a)))
        c = F.silu(self.middle(b)) + b
        return self.out(F.silu(self.join(torch.cat([self.up(c), a], 1))))


class Routed(nn.Module):
    """A router chooses two of four experts for every token."""

    def __init__(self, width, experts):
        super().__init__()
        self.embed, self.router = nn.Embedding(40, width), nn.Linear(width, experts, bias=False)
        self.make_experts(width, experts)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 40)

    def make_experts(self, width, experts):
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.2)

    def choose(self, x):
        weight, index = torch.topk(self.router(x).softmax(-1), 2, dim=-1)
        return weight / weight.sum(-1, keepdim=True), index

    def gate(self, x):
        """[..., experts]: how much of each expert's result a token takes, 0 of those it has not chosen."""
        weight, index = self.choose(x)
        return (F.one_hot(index, self.router.out_features).to(weight.dtype) * weight.unsqueeze(-1)).sum(-2)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(self.norm(x + self.mix(x)))


class Experts(Routed):
    """All experts compute, the others' part is 0."""

    def __init__(self):
        super().__init__(16, 4)

    def mix(self, x):
        gate = self.gate(x)
        y = F.gelu(torch.einsum("bsd,edf->bsef", x, self.up))
        y = torch.einsum("bsef,efd->bsed", y, self.down)
        return (y * gate.unsqueeze(-1)).sum(2)


class ExpertModules(Routed):
    """The same with experts that are modules of their own, in a loop, and one more that every token goes to."""

    def __init__(self):
        super().__init__(16, 4)

    def make_experts(self, width, experts):
        expert = lambda: nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.experts, self.shared = nn.ModuleList(expert() for _ in range(experts)), expert()

    def mix(self, x):
        gate, y = self.gate(x), self.shared(x)
        for i, expert in enumerate(self.experts):
            y = y + gate[..., i, None] * expert(x)
        return y


class DispatchedExperts(Routed):
    """GShard's form (Lepikhin et al. 2020): each token goes to two experts, which take so many of a sequence as they
    have room for; products with masks bring tokens to [experts, batch, capacity, width] and back."""

    capacity = 3

    def __init__(self):
        super().__init__(16, 4)

    def mix(self, x):
        weight, index = self.choose(x)
        combine, taken = 0, 0
        for choice in range(2):
            mask = F.one_hot(index[..., choice], self.up.shape[0])
            place = torch.cumsum(mask, 1) - mask + taken
            taken = taken + mask.sum(1, keepdim=True)
            slot = F.one_hot(place.clamp(max=self.capacity), self.capacity + 1)[..., :self.capacity]
            kept = (mask.unsqueeze(-1) * slot).to(weight.dtype)
            combine = combine + kept * weight[..., choice, None, None]
        dispatch = (combine > 0).to(weight.dtype)
        y = torch.einsum("bsec,bsd->ebcd", dispatch, x)
        y = F.gelu(torch.einsum("ebcd,edf->ebcf", y, self.up))
        y = torch.einsum("ebcf,efd->ebcd", y, self.down)
        return torch.einsum("bsec,ebcd->bsd", combine, y)


class LookedUpExperts(Routed):
    """As transformers exports experts (batched_mm): each token looks its two experts' weights up. With biases, as GPT-OSS
    has them, a gated product, and a shared expert that every token goes to."""

    def __init__(self):
        super().__init__(16, 4)

    def make_experts(self, width, experts):
        self.gate_up = nn.Parameter(torch.randn(experts, 2 * 24, width) * 0.2)
        self.gate_up_bias = nn.Parameter(torch.randn(experts, 2 * 24) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, width, 24) * 0.2)
        self.shared = nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, width))

    def mix(self, x):
        weight, index = self.choose(x)
        tokens = x.reshape(-1, x.shape[-1])
        experts, repeated = index.reshape(-1), tokens.unsqueeze(1).expand(-1, 2, -1).reshape(-1, tokens.shape[-1], 1)
        y = torch.bmm(self.gate_up[experts], repeated).squeeze(-1) + self.gate_up_bias[experts]
        gate, up = y.chunk(2, -1)
        y = torch.bmm(self.down[experts], (F.silu(gate) * up).unsqueeze(-1)).squeeze(-1) * weight.reshape(-1, 1)
        return self.shared(x) + y.reshape(tokens.shape[0], 2, -1).sum(1).reshape(x.shape)


class EncoderDecoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed, self.positions = nn.Embedding(60, width), nn.Parameter(torch.randn(12, width) * 0.02)
        self.transformer = nn.Transformer(width, 4, 2, 2, 64, dropout=0, batch_first=True)
        self.head = nn.Linear(width, 60, bias=False)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(10).to(self.positions.dtype)
        return self.head(self.transformer(self.embed(source) + self.positions,
                                          self.embed(target) + self.positions[:10], tgt_mask=mask))


class Odd(nn.Module):
    """A GPT of sizes that hardly anything divides: 61 words, 3 heads of 5, 5 layers, 13 positions, batches of 7."""

    def __init__(self, words=61, heads=3, size=5, layers=5, length=13):
        super().__init__()
        width = heads * size
        self.heads, self.embed, self.positions = heads, nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.attend = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.project = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.grow = nn.ModuleList(nn.Linear(width, 37) for _ in range(layers))
        self.shrink = nn.ModuleList(nn.Linear(37, width) for _ in range(layers))
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, ids):
        x = self.embed(ids) + self.positions
        batch, length, width = x.shape
        for i, attend in enumerate(self.attend):
            q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                       for part in attend(self.norms[2 * i](x)).split(width, dim=2))
            scores = (q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5).masked_fill(~self.mask, float("-inf"))
            x = x + self.project[i]((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
            x = x + self.shrink[i](F.gelu(self.grow[i](self.norms[2 * i + 1](x))))
        return F.linear(self.norms[-1](x), self.embed.weight)


def tokens(vocabulary, length, batch=BATCH):
    return torch.randint(0, vocabulary, (batch, length))


def orthogonal_in_doubles(x, coefficients, steps, eps):
    """What torch.optim.Muon computes in bf16."""
    a, b, c = coefficients
    y = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        s = y @ y.T
        y = a * y + (b * s + c * s @ s) @ y
    return y

class MuonAndAdamW:
    """Muon for the weights of products, AdamW for the rest, as Jordan et al. 2024 use it."""

    def __init__(self, model, lr, weight_decay):
        from torch.optim import _muon
        _muon._zeropower_via_newtonschulz = orthogonal_in_doubles
        matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
        rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
        self.both = [torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay),
                     torch.optim.AdamW(rest, lr=lr, weight_decay=weight_decay)]

    def zero_grad(self):
        for one in self.both:
            one.zero_grad()

    def step(self):
        for one in self.both:
            one.step()


OPTIMIZERS = {
    "adamw": (lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01),
              {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}),
    # its eps follows from the type, and that of the training recorded here is double
    "adafactor": (lambda model: torch.optim.Adafactor(model.parameters(), lr=2e-2, weight_decay=0.01, eps=(2**-23, 1e-3)),
                  {"lr": 2e-2, "weight_decay": 0.01}),
    "muon": (lambda model: MuonAndAdamW(model, lr=5e-3, weight_decay=0.1), {"lr": 5e-3, "betas": [0.9, 0.999]}),
}
# what their files do not tell
ROLES = {"odd_tiny": {"positions": "parameter"}, "encoder_decoder_tiny": {"positions": "parameter"}, "experts_tiny": {"up": "parameter", "down": "parameter"},
         "looked_up_experts_tiny": {name: "parameter" for name in ("gate_up", "gate_up_bias", "down")},
         "gshard_tiny": {"up": "parameter", "down": "parameter"}}
CROSS_ENTROPY = {"kind": "softmax_cross_entropy", "axis": -1, "output": "y", "reduction": "mean"}
# name -> (model, inputs, labels, loss[, optimizer])
MODELS = {
    "lstm_tiny": (Lstm, lambda: [tokens(50, 7)], lambda: tokens(50, 7), CROSS_ENTROPY),
    "unet_tiny": (UNet, lambda: [torch.randn(BATCH, 3, 16, 16)], lambda: torch.randn(BATCH, 3, 16, 16),
                  {"kind": "mse", "output": "y", "reduction": "mean"}),
    "experts_tiny": (Experts, lambda: [tokens(40, 6)], lambda: tokens(40, 6), CROSS_ENTROPY),
    "expert_modules_tiny": (ExpertModules, lambda: [tokens(40, 6)], lambda: tokens(40, 6), CROSS_ENTROPY),
    "gshard_tiny": (DispatchedExperts, lambda: [tokens(40, 6)], lambda: tokens(40, 6), CROSS_ENTROPY),
    "looked_up_experts_tiny": (LookedUpExperts, lambda: [tokens(40, 6)], lambda: tokens(40, 6), CROSS_ENTROPY),
    "odd_tiny": (Odd, lambda: [tokens(61, 13, batch=7)], lambda: tokens(61, 13, batch=7), CROSS_ENTROPY),
    "encoder_decoder_tiny": (EncoderDecoder, lambda: [tokens(60, 12), tokens(60, 10)], lambda: tokens(60, 10),
                             CROSS_ENTROPY),
    "adafactor_tiny": (ExpertModules, lambda: [tokens(40, 6)], lambda: tokens(40, 6), CROSS_ENTROPY, "adafactor"),
    "muon_tiny": (ExpertModules, lambda: [tokens(40, 6)], lambda: tokens(40, 6), CROSS_ENTROPY, "muon"),
}


def loss_of(loss, prediction, labels):
    if loss["kind"] == "mse":
        return F.mse_loss(prediction, labels)
    return F.cross_entropy(prediction.flatten(0, -2), labels.flatten())


def make(name):
    build, inputs, labels, loss, *kind = MODELS[name]
    kind = kind[0] if kind else "adamw"
    torch.manual_seed(0)
    model = build().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    batches = [(inputs(), labels()) for _ in range(STEPS)]
    names = [f"x{i}" for i in range(len(batches[0][0]))]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    torch.onnx.export(copy.deepcopy(model), tuple(batches[0][0]), str(folder / "model.onnx"), input_names=names,
                      output_names=["y"], dynamo=False, opset_version=17, do_constant_folding=False,
                      dynamic_axes={name: {0: "batch"} for name in names}, training=torch.onnx.TrainingMode.TRAINING)
    model = model.double()
    make_optimizer, optimizer_keys = OPTIMIZERS[kind]
    optimizer = make_optimizer(model)
    losses, norms, gradients = [], [], {}
    for batch, target in batches:
        wide = [x.double() if x.is_floating_point() else x for x in batch]
        optimizer.zero_grad()
        value = loss_of(loss, model(*wide), target.double() if target.is_floating_point() else target)
        value.backward()
        norms.append(float(torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))))
        losses.append(value.item())
        if not gradients:
            gradients = {n: {"norm": float(p.grad.norm()), "sum": float(p.grad.sum())} for n, p in model.named_parameters()}
        optimizer.step()
    arrays = {name: np.stack([batch[i].numpy() for batch, _ in batches]) for i, name in enumerate(names)}
    np.savez_compressed(folder / "data.npz", labels=np.stack([target.numpy() for _, target in batches]), **arrays)
    train = {"name": name, "loss": loss, "label": {"name": "labels"}, "dims": {"batch": len(batches[0][1])}, "steps": STEPS,
             "optimizer": {"kind": kind, **optimizer_keys}}
    if name in ROLES:
        train["roles"] = ROLES[name]
    (folder / "train.json").write_text(compact_json.text(train) + "\n")
    golden = {"loss_f64": losses, "grad_norm_f64": norms, "grads_step0_f64": gradients, "torch_version": torch.__version__}
    (folder / "golden.json").write_text(compact_json.text(golden) + "\n")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        make(wanted)
