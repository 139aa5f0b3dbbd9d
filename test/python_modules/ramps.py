"""A `ramp` of the batch and of the samples' length, and resumes with another batch, beside a PyTorch loop with the same samples."""
import copy
import json
import pathlib
import subprocess
import tempfile
import warnings

import cleave
import numpy as np
import torch
from cleave._tool import tool_path
from refused import refused
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SAMPLES, STEPS = 50, 11  # two epochs: the first ends in a batch of 16, which repeats samples
RAMP = [{"until": 3, "batch": 4}, {"until": 6, "batch": 8}]
SPLITS = {"one": ("cpu:1", {}), "zero": ("cpu:2", {"mesh": "dp=2", "zero": 3}), "tp": ("cpu:2", {"mesh": "tp=2"}),
          "pp": ("cpu:2", {"mesh": "pp=2", "microbatches": 2})}
RATES = [1e-2 * (t + 1) / 4 if t < 4 else 1e-2 * (20 - t) / 16 for t in range(STEPS)]


def batch_of(step, last=16):
    return next((stage["batch"] for stage in RAMP if step < stage["until"]), last)


def order(batches):
    """As data.shuffle false: an epoch's end is filled up from its beginning."""
    position = 0
    for batch in batches:
        if position >= SAMPLES:
            position = 0
        yield [at % SAMPLES for at in range(position, position + batch)]
        position += batch


def by_torch(module, x, labels, batches, rates=RATES, cut=lambda step, x: x):
    module, losses = copy.deepcopy(module), []
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for step, samples in enumerate(order(batches)):
        optimizer.param_groups[0]["lr"] = rates[step]
        optimizer.zero_grad()
        logits = module(cut(step, x[samples]))
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), cut(step, labels[samples]).flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(module)
        losses.append(loss.item())
    return losses, average.module


def tool(*words, fails=False):
    done = subprocess.run([tool_path(), *map(str, words)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr


def told(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def close(one, other, rtol=1e-5):
    assert len(one) == len(other) and np.allclose(one, other, rtol=rtol), (one, other)


def recipe_of(folder, **more):
    return {"dims": {"batch": 16}, "loss": {"kind": "softmax_cross_entropy"}, "clip_norm": 1.0, "ema": {"decay": 0.9},
            "optimizer": {"kind": "adamw", "lr": {"kind": "linear", "peak": 1e-2, "warmup_steps": 4, "total_steps": 20}},
            "data": {"kind": "arrays", "path": f"{folder}/data.npz", "shuffle": False}, **more}


def averages(folder):
    from safetensors.numpy import load_file
    tool("export", f"{folder}/s", "--ema", "-o", f"{folder}/ema.safetensors")
    return load_file(f"{folder}/ema.safetensors")


def ramped(folder, net, x, labels):
    """On each split, and from one to another in the middle of the ramp and of the epoch."""
    wanted, average = by_torch(net, x, labels, [batch_of(step) for step in range(STEPS)])
    plans = {name: cleave.compile(f"{folder}/model.onnx", recipe_of(folder, ramp=RAMP), cluster, f"{folder}/{name}.plan", **split).path
             for name, (cluster, split) in SPLITS.items()}
    for first, then in [("one", "one"), ("zero", "pp"), ("tp", "zero"), ("pp", "one")]:
        files = ["--quiet", "--snapshot", f"{folder}/s", "--metrics", f"{folder}/m.jsonl"]
        tool("run", plans[first], "--steps", 5, "--overwrite", *files)
        tool("run", plans[then], "--steps", STEPS, "--resume", *files)
        lines = told(f"{folder}/m.jsonl")
        close([line["loss"] for line in lines], wanted)
        close([line["lr"] for line in lines], RATES)
        assert [round(line["samples_per_s"] * line["step_time_s"]) for line in lines] == [batch_of(step) for step in range(STEPS)]
        for name, value in averages(folder).items():
            assert np.allclose(value, average.state_dict()[name].numpy(), rtol=1e-4, atol=1e-6), name
        pathlib.Path(folder, "m.jsonl").unlink()
    tool("verify", "--steps", 3, plans["pp"])
    # Without --steps an epoch: 3 of 4, 3 of 8, and one of 16 of 50 samples.
    tool("run", plans["one"], "--quiet", "--metrics", f"{folder}/e.jsonl")
    assert len(told(f"{folder}/e.jsonl")) == 7
    return plans


def resumed(folder, net, x, labels):
    """Another dims.batch on resume: the order goes on, the schedule counts steps."""
    batches = [16] * 2 + [4] * 5 + [8] * 3
    wanted, _ = by_torch(net, x, labels, batches, RATES)
    for cluster, split in SPLITS["zero"], SPLITS["pp"]:
        recipe = recipe_of(folder)
        pathlib.Path(folder, "r.yaml").write_text(json.dumps(recipe))
        plan = cleave.compile(f"{folder}/model.onnx", recipe, cluster, f"{folder}/r.plan", **split).path
        files = ["--quiet", "--snapshot", f"{folder}/s", "--metrics", f"{folder}/r.jsonl"]
        tool("run", plan, "--steps", 2, "--overwrite", *files)
        for steps, batch in (7, 4), (10, 8):
            tool("run", plan, "--steps", steps, "--resume", "--recipe", f"{folder}/r.yaml", "--set", f"dims.batch={batch}", *files)
        close([line["loss"] for line in told(f"{folder}/r.jsonl")], wanted)
        pathlib.Path(folder, "r.jsonl").unlink()


def in_python(folder, net, x, labels, plan):
    """The caller's arrays have the sizes of the step's stage."""
    wanted, _ = by_torch(net, x, labels, [batch_of(step) for step in range(STEPS)])
    with cleave.Trainer(plan) as trainer:
        samples = [torch.tensor(own) for own in order(batch_of(step) for step in range(STEPS))]
        losses = [trainer.step({"input": x[own], "labels": labels[own]}).loss for own in samples[:3]]
        refused(lambda: trainer.step({"input": x[:16], "labels": labels[:16]}), "input 'input' has shape (8, 8) in step 4 of the ramp and (16, 8) here")
        losses += [trainer.step({"input": x[own], "labels": labels[own]}).loss for own in samples[3:]]
        close(losses, wanted)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)

    def forward(self, ids):
        return self.head(torch.tanh(self.table(ids)))


def lengthened(folder):
    """Samples of 12 positions are cut to 4 and to 8 at first; the batch grows, too."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    net = Words()
    weights = [numpy_helper.from_array(net.table.weight.detach().numpy(), "table"),
               numpy_helper.from_array(net.head.weight.detach().numpy().T.copy(), "head")]
    nodes = [helper.make_node("Gather", ["table", "input"], ["e"]), helper.make_node("Tanh", ["e"], ["t"]),
             helper.make_node("MatMul", ["t", "head"], ["logits"])]
    graph = helper.make_graph(nodes, "words", [helper.make_tensor_value_info("input", TensorProto.INT64, ["batch", "seq"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "seq", 20])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), f"{folder}/words.onnx")
    ids, labels = torch.randint(0, 20, (SAMPLES, 12)), torch.randint(0, 20, (SAMPLES, 12))
    np.savez(f"{folder}/words.npz", input=ids.numpy(), labels=labels.numpy())
    ramp = [{"until": 2, "batch": 4, "seq": 4}, {"until": 4, "seq": 8}]
    recipe = recipe_of(folder, dims={"batch": 8, "seq": 12}, ramp=ramp)
    recipe["data"]["path"] = f"{folder}/words.npz"
    wanted, _ = by_torch(net, ids, labels, [4] * 2 + [8] * 6, cut=lambda step, x: x[:, :4 if step < 2 else 8 if step < 4 else 12])
    for cluster, split in SPLITS["zero"], SPLITS["pp"]:
        plan = cleave.compile(f"{folder}/words.onnx", recipe, cluster, f"{folder}/w.plan", **split).path
        tool("run", plan, "--steps", 8, "--quiet", "--metrics", f"{folder}/w.jsonl")
        lines = told(f"{folder}/w.jsonl")
        close([line["loss"] for line in lines], wanted)
        assert [round(line["tokens_per_s"] * line["step_time_s"]) for line in lines] == [16] * 2 + [64] * 2 + [96] * 4
        pathlib.Path(folder, "w.jsonl").unlink()


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    x, labels = torch.randn(SAMPLES, 8), torch.randint(0, 4, (SAMPLES,))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", input=x.numpy(), labels=labels.numpy())
        cleave.export(net, (x[:2],), f"{folder}/model.onnx")
        plans = ramped(folder, net, x, labels)
        resumed(folder, net, x, labels)
        in_python(folder, net, x, labels, plans["pp"])
        lengthened(folder)
        refused(lambda: cleave.compile(f"{folder}/model.onnx", recipe_of(folder, ramp=[{"until": 3, "batch": 5}]), "cpu:2", mesh="pp=2",
                                       microbatches=2), "ramp, until step 3: ", "5")
    print("ramps: as expected")


main()
