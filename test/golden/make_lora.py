#!/usr/bin/env python3
"""Train low-rank adapters in PyTorch beside weights of the modules of make_exports.py, and record losses and adapters.
Run by hand (needs torch and onnx):

    make_lora.py BUILD

The adapters' formula is PEFT's: y = base(x) + alpha / rank B(A(x)). A begins as Cleave draws it, which a run without any
learning gives. One folder of `lora/` each: recipe.yaml, expected.json (losses of STEPS steps in doubles), and adapters.npz:
`initial/KEY` and `trained/KEY`. Some have a model.onnx whose base is quantized as onnxruntime's tools do it, with their
names; PyTorch computes with the numbers that the integers stand for. test/cli/lora.test compares.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import golden
import make_exports

HERE = pathlib.Path(__file__).parent
RANK, ALPHA, STEPS, BATCH, RATE, DECAY = 2, 6, 6, 4, 0.02, 0.1
ATTENTION = ["*q_proj*", "*v_proj*"]
# Folder: the export, the globs, and how its linear layers are stored.
MODELS = {"gpt.dynamo": ("gpt.dynamo", ATTENTION, None), "gpt.torchscript": ("gpt.torchscript", ATTENTION, None),
          "albert.dynamo": ("albert.dynamo", ["*mlp*"], None), "gpt.int8": ("gpt.torchscript", ATTENTION, "int8"),
          "gpt.int4": ("gpt.torchscript", ATTENTION, "int4"), "gpt.nbits": ("gpt.torchscript", ATTENTION, "nbits")}


class Adapted(nn.Module):
    def __init__(self, base, a, b):
        super().__init__()
        self.base, self.lora_A, self.lora_B = base, nn.Parameter(a), nn.Parameter(b)

    def forward(self, x):
        return self.base(x) + ALPHA / RANK * (x @ self.lora_A.T @ self.lora_B.T)


def quantize(model, kind):
    """Quantizes the weights of a TorchScript export's linear layers in place; returns {module: what they stand for [in, out]}."""
    graph, values = model.graph, {}
    stored = {one.name: numpy_helper.to_array(one) for one in graph.initializer}

    def add(name, array, dtype=None):
        array = np.ascontiguousarray(array)
        if dtype == TensorProto.INT4:  # two to a byte, the first in the low bits
            low = array.reshape(-1, 2).astype(np.uint8) & 15
            graph.initializer.append(onnx.TensorProto(name=name, data_type=dtype, dims=array.shape,
                                                      raw_data=(low[:, 0] | low[:, 1] << 4).astype(np.uint8).tobytes()))
        else:
            graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    for at, node in reversed(list(enumerate(graph.node))):
        if node.op_type != "MatMul" or node.input[1] not in stored or "lm_head" in node.name:
            continue
        name, weight = node.input[1], stored[node.input[1]]
        rows, columns = weight.shape
        if kind == "int8":  # a scale for each column
            scale = (np.abs(weight).max(0) / 127).astype(np.float32)
            numbers = np.rint(weight / scale).astype(np.int8)
            known = numbers * scale
            inputs = [add(name + "_quantized", numbers), add(name + "_scale", scale),
                      add(name + "_zero_point", np.zeros(columns, np.int8))]
            attributes = {"axis": 1}
        elif kind == "int4":  # a scale for each four rows of a column
            blocks = weight.reshape(rows // 4, 4, columns)
            scale = (np.abs(blocks).max(1) / 7).astype(np.float32)
            numbers = np.rint(blocks / scale[:, None]).astype(np.int8)
            known = (numbers * scale[:, None]).reshape(weight.shape)
            inputs = [add(name + "_DQ_Q4", numbers.reshape(weight.shape), TensorProto.INT4), add(name + "_DQ_scales", scale)]
            attributes = {"axis": 0, "block_size": 4}
        if kind != "nbits":
            graph.node.insert(at, helper.make_node("DequantizeLinear", inputs, [name + "_DequantizeLinear_Output"],
                                                   name + "_DequantizeLinear", **attributes))
            node.input[1] = name + "_DequantizeLinear_Output"
        else:  # MatMulNBits: [out, blocks of 16 rows, bytes], numbers from 0 to 15 around 8
            scale = (np.abs(weight).max(0) / 7).astype(np.float32)
            numbers = np.rint(weight / scale) + 8
            known = ((numbers - 8) * scale).astype(np.float32)
            padded = np.zeros((columns, 16), np.uint8)
            padded[:, :rows] = numbers.T
            inputs = [node.input[0], add(name + "_Q4", (padded[:, ::2] | padded[:, 1::2] << 4).reshape(columns, 1, 8)),
                      add(name + "_scales", scale)]
            node.CopyFrom(helper.make_node("MatMulNBits", inputs, list(node.output), node.name + "_Q4", domain="com.microsoft",
                                           K=rows, N=columns, bits=4, block_size=16))
        values[node.name.removesuffix("_Q4").strip("/").rsplit("/", 1)[0].replace("/mlp/", "/").replace("/", ".")] = known
    read = {name for node in graph.node for name in node.input}
    kept = [one for one in graph.initializer if one.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    model.opset_import[0].version = 21
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.ir_version = 10
    return values


def initial_adapters(build, model, data, recipe):
    with tempfile.TemporaryDirectory() as scratch:
        cleave, scratch = pathlib.Path(build) / "bin" / "cleave", pathlib.Path(scratch)
        onnx.save(model, scratch / "model.onnx")
        for command in ([cleave, "compile", scratch / "model.onnx", "--recipe", recipe, "--set", "optimizer.lr=0", "--set",
                         f"data.path={data}", "--cluster", "cpu:1", "-o", scratch / "x.plan"],
                        [cleave, "run", scratch / "x.plan", "--steps", "1", "--snapshot", scratch / "s", "--quiet"],
                        [cleave, "export", scratch / "s", "-o", scratch / "adapter"]):
            subprocess.run(list(map(str, command)), check=True)
        return {key: value.copy() for key, value in golden.read_safetensors(scratch / "adapter" / "adapter_model.safetensors").items()}


def main(build):
    for name, (export, match, kind) in MODELS.items():
        folder, source = HERE / "lora" / name, HERE / "exports" / export
        folder.mkdir(parents=True, exist_ok=True)
        graph = onnx.load(source / "model.onnx")
        values = quantize(graph, kind) if kind else {}
        if kind:
            onnx.save(graph, folder / "model.onnx")
        recipe = folder / "recipe.yaml"
        recipe.write_text(f"dims: {{batch: {BATCH}}}\nloss: {{kind: softmax_cross_entropy}}\n"
                          f"optimizer: {{kind: adamw, lr: {RATE}, weight_decay: {DECAY}}}\n"
                          f"lora: {{match: {json.dumps(match)}, rank: {RANK}, alpha: {ALPHA}}}\n"
                          "data: {kind: arrays, path: data.npz, shuffle: false}\n")
        adapters = initial_adapters(build, graph, source / "data.npz", recipe)
        make, _ = make_exports.MODULES[export.split(".")[0]]
        module, state = make().eval(), np.load(source / "state.npz")
        module.load_state_dict({key.removeprefix("initial/"): torch.from_numpy(state[key]) for key in state.files
                                if key.startswith("initial/")})
        for layer, value in values.items():
            module.get_submodule(layer).weight.data.copy_(torch.from_numpy(value.T.copy()))
        module.double().requires_grad_(False)
        trained = {}
        for key in [key for key in adapters if key.endswith("lora_A.weight")]:
            layer = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            parent, _, leaf = layer.rpartition(".")
            b = adapters[key.replace("lora_A", "lora_B")]
            adapted = Adapted(module.get_submodule(layer), torch.from_numpy(adapters[key]).double(), torch.from_numpy(b).double())
            assert adapted.lora_A.shape == (RANK, adapted.base.in_features) and not b.any()
            assert adapted.lora_A.abs().max() <= adapted.base.in_features ** -0.5
            setattr(module.get_submodule(parent), leaf, adapted)
            trained |= {key: adapted.lora_A, key.replace("lora_A", "lora_B"): adapted.lora_B}
        data = np.load(source / "data.npz")
        x, labels = torch.from_numpy(data["x"]), torch.from_numpy(data["labels"])
        optimizer = torch.optim.AdamW(trained.values(), lr=RATE, weight_decay=DECAY)
        losses = []
        for step in range(STEPS):
            part = slice(step * BATCH % len(x), step * BATCH % len(x) + BATCH)
            loss = F.cross_entropy(module(x[part]).flatten(0, -2), labels[part].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        (folder / "expected.json").write_text(json.dumps({"loss": losses}) + "\n")
        np.savez(folder / "adapters.npz", **{f"initial/{key}": value for key, value in adapters.items()},
                 **{f"trained/{key}": value.detach().float().numpy() for key, value in trained.items()})
        print(name, len(trained), "matrices", losses)


if __name__ == "__main__":
    main(*sys.argv[1:])
