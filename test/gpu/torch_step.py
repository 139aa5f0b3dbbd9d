"""The same training in PyTorch: model and loss in torch.compile, bf16 autocast, fused optimizer. Prints the seconds of every step
as a line of JSON.

    python torch_step.py gpt2|resnet50 BATCH STEPS [MODE]         a mode of torch.compile's: default, reduce-overhead, max-autotune
"""
import json
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

HIDDEN, HEADS, LAYERS, VOCAB, BLOCK = 768, 12, 12, 50304, 1024


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(HIDDEN, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, HIDDEN))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(BLOCK, HIDDEN)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(LAYERS)), nn.LayerNorm(HIDDEN)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.tokens.weight.t()


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        def conv(a, b, kernel, step):
            return nn.Sequential(nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b))
        self.parts = nn.Sequential(conv(inner, width, 1, 1), nn.ReLU(), conv(width, width, 3, stride), nn.ReLU(),
                                   conv(width, 4 * width, 1, 1))
        self.skip = conv(inner, 4 * width, 1, stride) if stride != 1 or inner != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.parts(x) + self.skip(x))


def resnet50():
    layers, inner = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for index in range(blocks):
            layers.append(Bottleneck(inner, width, 2 if stage and index == 0 else 1))
            inner = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def loss_of(model, precision):
    """Model and loss as one function: compiled together, the loss is fused with the logits' cast and gradient."""
    def loss(x, y):
        with torch.autocast(x.device.type, precision):
            return F.cross_entropy(model(x).flatten(0, -2), y.flatten())
    return loss


def seconds_of_steps(loss, model, optimizer, x, y, clip, steps, synchronize):
    times = []
    for _ in range(steps):
        synchronize()
        start = time.perf_counter()
        torch.compiler.cudagraph_mark_step_begin()
        value = loss(x, y)
        value.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        times.append(time.perf_counter() - start)
    assert math.isfinite(value.item())
    return times


def main():
    name, batch, steps, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or ["default"])[0]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    if name == "gpt2":
        model = Gpt2().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        x, y = (torch.randint(VOCAB, (batch, BLOCK), device="cuda") for _ in range(2))
        clip = 1.0
    else:
        model = resnet50().cuda().to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
        x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(1000, (batch,), device="cuda")
        clip = None
    compiled = torch.compile(loss_of(model, torch.bfloat16), mode=mode)
    times = seconds_of_steps(compiled, model, optimizer, x, y, clip, steps, torch.cuda.synchronize)
    print(json.dumps({"torch": torch.__version__, "mode": mode, "times": times}))


if __name__ == "__main__":
    main()
