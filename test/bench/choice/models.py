#!/usr/bin/env python3
"""The models of choice.py in PyTorch. Each is a list of blocks, so that a pipeline can be cut between any two.

    models.py export NAME FOLDER    # FOLDER/model.onnx, its graph alone, and FOLDER/recipe.yaml
"""
import dataclasses
import json
import pathlib
import shutil
import sys
import typing

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "models"))

ADAMW = {"kind": "adamw", "lr": 1e-4, "weight_decay": 0.01}
BIASES = {"match": "*bias*", "kind": "zeros"}
NORMAL = {"kind": "normal", "std": 0.02}
CROSS_ENTROPY = {"kind": "softmax_cross_entropy", "labels": {"name": "labels"}}


class Chain(nn.Module):
    """Blocks one after the other. What a block gives is one tensor or a tuple, as what a stage gives the next one."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, *x):
        x = x[0] if len(x) == 1 else x
        for block in self.blocks:
            x = block(x)
        return x


@dataclasses.dataclass
class Model:
    title: str
    batch: int
    blocks: typing.Callable[[], list]
    inputs: typing.Callable[[int], torch.Tensor]  # of so many samples
    labels: typing.Callable[[int], torch.Tensor]
    loss: typing.Callable  # (outputs, labels) -> their mean
    optimizer: typing.Callable  # of parameters
    recipe: dict = None  # None: the demo model's own
    write: typing.Callable = None  # of a folder; None: exported
    clip_norm: float = None

    def export(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        if self.write:
            self.write(folder)
        else:
            export(Chain(self.blocks()), self.inputs(2), folder / "model.onnx")
        if self.recipe:
            recipe = {"dims": {"batch": self.batch}, "optimizer": ADAMW, "data": {"kind": "synthetic"}, **self.recipe}
            (folder / "recipe.yaml").write_text(json.dumps(recipe, indent=1))  # JSON is YAML
        (folder / "title").write_text(self.title)


def export(module, inputs, path):
    from graph_only import drop_metadata, drop_weights
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1e-3 * torch.randn_like(parameter))  # exporters merge weights that are equal
    torch.onnx.export(module.train(), (inputs,), path, input_names=["input"], output_names=["output"], dynamo=True, opset_version=20,
                      external_data=False, dynamic_shapes=(({0: torch.export.Dim("batch")},),), verbose=False)
    drop_metadata(path)
    drop_weights(path)


def copy(model, recipe):
    def write(folder):
        shutil.copy(ROOT / "models" / model, folder / "model.onnx")
        shutil.copy(ROOT / "models" / recipe, folder / "recipe.yaml")
    return write


def cross_entropy(outputs, labels):
    return F.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, fused=True)


def tokens(words, length):
    return lambda samples: torch.randint(words, (samples, length))


class Function(nn.Module):
    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(x, *self.parts)


def mingpt():
    from export_mingpt import GPT
    gpt = GPT(8, 8, 512, 128, 65)
    first = Function(lambda x, words, places: words(x) + places(torch.arange(x.shape[1])), gpt.wte, gpt.wpe)
    return [first, *gpt.h, nn.Sequential(gpt.ln_f, gpt.lm_head)]


def bert():
    """BERT base; its head has a table of its own, as no pipeline of PyTorch's shares one between stages."""
    import transformers
    config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, tie_word_embeddings=False)
    whole = transformers.BertForMaskedLM(config)
    whole.cls.predictions.bias = whole.cls.predictions.decoder.bias
    layers = [Function(lambda x, layer: layer(x), layer) for layer in whole.bert.encoder.layer]
    return [Function(lambda x, embeddings: embeddings(x), whole.bert.embeddings), *layers, whole.cls]


def resnet50():
    import torchvision
    net = torchvision.models.resnet50()
    blocks = [block for layer in (net.layer1, net.layer2, net.layer3, net.layer4) for block in layer]
    return [nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool), *blocks, nn.Sequential(net.avgpool, nn.Flatten(), net.fc)]


def write_resnet50(folder):
    sys.path.insert(0, str(ROOT / "models/resnet"))
    import make_resnet
    make_resnet.write(folder / "model.onnx")


class Convolutions(nn.Module):
    """Two convolutions with group norms, and a way past them."""

    def __init__(self, inner, outer):
        super().__init__()
        self.body = nn.Sequential(nn.GroupNorm(8, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1),
                                  nn.GroupNorm(8, outer), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1))
        self.past = nn.Conv2d(inner, outer, 1)

    def forward(self, x):
        return self.past(x) + self.body(x)


def unet(widths=(64, 128, 256)):
    """Of a diffusion model of small images. Between blocks: what is worked on, and what the way up takes again."""
    def down(state, body, smaller):
        x, *kept = state if isinstance(state, tuple) else (state,)
        y = body(x)
        return smaller(y), *kept, y

    def middle(state, body):
        x, *kept = state
        return body(x), *kept

    def up(state, larger, body):
        x, *kept, y = state
        z = body(torch.cat([larger(x), y], 1))
        return (z, *kept) if kept else z

    steps = list(zip(widths, widths[1:]))
    downs = [Function(down, Convolutions(a, b), nn.Conv2d(b, b, 3, 2, 1)) for a, b in steps]
    ups = [Function(up, nn.ConvTranspose2d(b, b, 4, 2, 1), Convolutions(2 * b, a)) for a, b in reversed(steps)]
    last = nn.Sequential(nn.GroupNorm(8, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], 3, 3, padding=1))
    return [nn.Conv2d(3, widths[0], 3, padding=1), *downs, Function(middle, Convolutions(widths[-1], widths[-1])), *ups, last]


def lstm(words=10000, width=512):
    def layer():
        return Function(lambda x, body: body(x)[0], nn.LSTM(width, width, batch_first=True))
    return [nn.Embedding(words, width), layer(), layer(), nn.Linear(width, words)]


def classifier():
    from export_fairscale_classifier import classifier
    return list(classifier())


IMAGES = {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}, "batch_norm": "training",
          "init": {"kind": "kaiming_normal", "rules": [{"match": "*.bn.weight", "kind": "ones"}, {"match": "*.bias", "kind": "zeros"}]}}
MODELS = {
    "mingpt": Model("minGPT 8x512, 8 x 128 tokens", 8, mingpt, tokens(65, 128), tokens(65, 128), cross_entropy,
                    lambda p: torch.optim.AdamW(p, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True), clip_norm=1.0,
                    write=copy("mingpt/8x512.onnx", "mingpt/8x512.yaml")),
    "bert": Model("BERT base, 4 x 64 tokens", 4, bert, tokens(30522, 64), tokens(30522, 64), cross_entropy, adamw,
                  {"loss": CROSS_ENTROPY, "init": {**NORMAL, "rules": [{"match": "*LayerNorm.weight", "kind": "ones"}, BIASES]}}),
    "resnet50": Model("ResNet-50, 4 images of 224 x 224", 4, resnet50, lambda n: torch.randn(n, 3, 224, 224),
                      lambda n: torch.randint(1000, (n,)), F.cross_entropy,
                      lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True),
                      {"loss": CROSS_ENTROPY, **IMAGES}, write_resnet50),
    "classifier": Model("FairScale's classifier, 50 images of 32 x 32", 50, classifier, lambda n: torch.randn(n, 3, 32, 32),
                        lambda n: F.one_hot(torch.randint(10, (n,)), 10).float(), F.binary_cross_entropy,
                        lambda p: torch.optim.Adam(p, lr=1e-5, fused=True),
                        write=copy("fairscale_classifier/classifier.onnx", "fairscale_classifier/classifier.yaml")),
    "unet": Model("U-Net, 16 images of 32 x 32", 16, unet, lambda n: torch.randn(n, 3, 32, 32), lambda n: torch.randn(n, 3, 32, 32),
                  F.mse_loss, adamw, {"loss": {"kind": "mse", "labels": {"name": "labels"}}, "init": {**NORMAL, "rules": [BIASES]}}),
    "lstm": Model("LSTM 2x512, 16 x 32 words of 10,000", 16, lstm, tokens(10000, 32), tokens(10000, 32), cross_entropy, adamw,
                  {"loss": CROSS_ENTROPY, "init": {**NORMAL, "rules": [BIASES]}}),
}

if __name__ == "__main__":
    MODELS[sys.argv[2]].export(pathlib.Path(sys.argv[3]))
