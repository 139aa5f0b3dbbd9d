"""Modules that are exported without their weights: the same statement, split and losses as with them."""
import sys
import tempfile
import warnings

import cleave
import torch
from safetensors.torch import save_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from refused import refused

RECIPE = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-3},
          "dropout": "off"}
IDS = (torch.arange(16).reshape(2, 8) % 64,)


class Net(nn.Module):
    """A tied embedding, a causal mask and frequencies in buffers, dropouts, running statistics, an LSTM and attention."""

    def __init__(self):
        super().__init__()
        self.embed, self.fc, self.drop = nn.Embedding(64, 16), nn.Linear(16, 16), nn.Dropout(0.1)
        self.head = nn.Linear(16, 64, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("causal", torch.ones(8, 8).tril().bool(), persistent=False)
        self.register_buffer("frequencies", torch.linspace(0.1, 1.0, 16))
        self.norm, self.lstm = nn.BatchNorm1d(8), nn.LSTM(16, 16, batch_first=True)
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.2, batch_first=True)

    def forward(self, x):
        y = self.drop(self.fc(self.embed(x))) * self.frequencies.sin()
        y = self.lstm(self.norm(y))[0]
        return self.head(self.attention(y, y, y, attn_mask=~self.causal, need_weights=False)[0])


class Noisy(nn.Sequential):
    def forward(self, x):
        return super().forward(x + torch.rand_like(x))


def llama():
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                        num_attention_heads=4, max_position_embeddings=8, use_cache=False, bos_token_id=0,
                                        eos_token_id=0, tie_word_embeddings=True))


def tensors(module):
    return {name: (id(tensor), tensor.detach().clone()) for name, tensor in module.state_dict(keep_vars=True).items()}


def stated(statement):
    """The statement but for its remarks."""
    return {key: value for key, value in statement.items() if key != "remarks"}


def chosen(report):
    """A report's split and figures, without how long the search took."""
    return {key: report.data[key] for key in ("mesh", "predicted", "parameters") if key in report.data}


def losses(plan, labels):
    with cleave.Trainer(plan) as trainer:
        name = next(iter(trainer.inputs))
        ids = torch.arange(64).reshape(8, 8)
        return [trainer.step({name: ids, "labels": labels}).loss for _ in range(3)]


def frozen():
    module = Net()
    module.fc.requires_grad_(False)
    return module


def compare_exports(build, folder):
    """Exports a module with weights, without them, and built without them. Returns the first and the last."""
    torch.manual_seed(0)
    module = build()
    before = tensors(module)
    whole = cleave.export(module, IDS, f"{folder}/whole.onnx")
    left_out = cleave.export(module, IDS, f"{folder}/left_out.onnx", weights=False)
    after = tensors(module)
    assert all(after[name][0] == key and torch.equal(after[name][1], value) for name, (key, value) in before.items())
    with cleave.without_weights():
        meta = build()
    assert all(parameter.is_meta for parameter in meta.parameters()) and not any(buffer.is_meta for buffer in meta.buffers())
    built = cleave.export(meta, IDS, f"{folder}/built.onnx", weights=False)
    assert stated(whole) == stated(left_out) == stated(built), (whole, left_out, built)
    assert any("exported without weights" in remark for remark in built["remarks"]), built["remarks"]
    return module, meta


def compare_training(module, meta, folder):
    """The same split and losses, the weights being those of a checkpoint."""
    reports = [chosen(cleave.estimate(f"{folder}/{name}.onnx", RECIPE, "cpu:2")) for name in ("whole", "left_out", "built")]
    assert reports[0] == reports[1] == reports[2], f"{reports[0]}\n{reports[1]}\n{reports[2]}"
    assert chosen(cleave.estimate(meta, RECIPE, "cpu:2", example=IDS, weights=False)) == reports[0]

    save_model(module, f"{folder}/weights.safetensors")
    recipe = {**RECIPE, "init": {"kind": "safetensors", "path": f"{folder}/weights.safetensors"}}
    labels = torch.arange(64).reshape(8, 8) % 7
    with_weights = losses(cleave.compile(module, RECIPE, "cpu:2", example=IDS, check=False), labels)
    assert losses(cleave.compile(meta, recipe, "cpu:2", example=IDS, weights=False), labels) == with_weights, with_weights


def refusals(folder):
    path = f"{folder}/refused.onnx"
    with cleave.without_weights():
        meta = Net()
    refused(lambda: cleave.export(meta, IDS, path), "embed.weight: is on the meta device", "weights=False")
    refused(lambda: cleave.estimate(meta, RECIPE, "cpu:2", example=IDS), "embed.weight: is on the meta device", "weights=False")
    refused(lambda: cleave.compile(meta, RECIPE, "cpu:2", example=IDS, weights=False, check=True), "weights=False")
    refused(lambda: cleave.check_import(meta, path, recipe=RECIPE, example=IDS), "on the meta device")
    refused(lambda: cleave.load_into(meta, folder), "on the meta device")
    refused(lambda: cleave.export(meta, IDS, path, weights=False, exporter="torchscript"), "weights=False", "dynamo")
    with torch.device("meta"):
        everything = Net()
    refused(lambda: cleave.export(everything, IDS, path, weights=False), "frequencies: is a buffer", "without_weights()")
    noisy = Noisy(nn.Linear(4, 4))
    refused(lambda: cleave.export(noisy, torch.zeros(2, 4), path, weights=False), "aten.rand_like: draws random numbers")
    hooked = nn.Sequential(nn.Linear(4, 4))
    hooked[0].weight.register_hook(lambda gradient: 2 * gradient)
    refused(lambda: cleave.export(hooked, torch.zeros(2, 4), path, weights=False), "0.weight: has a gradient hook")
    plan = cleave.compile(meta, RECIPE, "cpu:2", example=IDS, weights=False)
    refused(lambda: cleave.Trainer(plan), "weights-left-out: cannot be opened")


def main():
    warnings.filterwarnings("ignore")
    for build in (Net, llama):
        with tempfile.TemporaryDirectory() as folder:
            compare_training(*compare_exports(build, folder), folder)
    with tempfile.TemporaryDirectory() as folder:
        compare_exports(frozen, folder)
        refusals(folder)
    print("without weights: as expected")


if __name__ == "__main__":
    sys.exit(main())
