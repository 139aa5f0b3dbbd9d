"""Each of two processes passes its own part of a batch: the losses and weights of global batches, bit for bit.

    local_batches.py MODEL                of mlp: x [batch, 20], 10 classes
    local_batches.py rank FOLDER SPLIT WAY...     one of the ranks, which this script starts itself; WAY: global, local, others
    local_batches.py fit FOLDER                   likewise: each fits the parts that it has
"""
import json
import os
import pathlib
import sys
import tempfile
import time

import cleave
import numpy as np
from ranks import run_ranks
from refused import refused

STEPS, BATCH = 4, 8
RECIPE = {"dims": {"batch": BATCH}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2}, "clip_norm": 1.0}
# name: (split, samples of each rank)
SPLITS = {
    "dp": ({"mesh": "dp=2"}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "zero": ({"mesh": "dp=2", "zero": 3}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "microbatches": ({"mesh": "dp=2", "microbatches": 2}, [[0, 1, 4, 5], [2, 3, 6, 7]]),
    "tp": ({"mesh": "tp=2"}, [list(range(8))] * 2),
    "pp": ({"mesh": "pp=2", "microbatches": 2}, [list(range(8))] * 2),
    "time": ({"mesh": "dp=2"}, [[0, 1, 2, 3], [4, 5, 6, 7]]),  # of a model whose samples are the second dimension
    "time_microbatches": ({"mesh": "dp=2", "microbatches": 2}, [[0, 1, 4, 5], [2, 3, 6, 7]]),
}


def time_first(path):
    """input [3, batch, 20]: its mean over time goes through one layer."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    weight = np.random.default_rng(1).standard_normal((20, 10)).astype(np.float32)
    axes = numpy_helper.from_array(np.array([0]), "axes")
    nodes = [helper.make_node("ReduceMean", ["input", "axes"], ["mean"], keepdims=0), helper.make_node("MatMul", ["mean", "w"], ["y"])]
    graph = helper.make_graph(nodes, "time", [helper.make_tensor_value_info("input", TensorProto.FLOAT, [3, "batch", 20])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
                              [numpy_helper.from_array(weight, "w"), axes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def batches(split):
    random = np.random.default_rng(0)
    shape = (3, BATCH, 20) if split.startswith("time") else (BATCH, 20)
    for _ in range(STEPS):
        yield {"input": random.standard_normal(shape, dtype=np.float32), "labels": random.integers(0, 10, BATCH)}


def part(batch, own):
    return batch if own is None else {name: array.take(own, array.ndim - 2 if name == "input" else 0) for name, array in batch.items()}


def rank(folder, split, *ways):
    print(json.dumps({way: train(folder, split, way) for way in ways}))


def train(folder, split, way):
    with cleave.Trainer(f"{folder}/{split}.plan", snapshots=f"{folder}/{split}-{way}", local_batches=way != "global") as trainer:
        own = trainer.rank_samples
        if way == "others":  # what a DistributedSampler over all ranks gives to those of one group of tp
            batch = next(batches(split))
            refused(lambda: trainer.step({**batch, "input": batch["input"] + int(trainer.is_first)}),
                    "ranks 0 and 1 read the same samples, and were given different arrays of input 'input'")
            return None
        if own:
            for name, (_, shape) in trainer.inputs.items():
                assert shape == part(next(batches(split)), own)[name].shape, (name, shape)
            if len(own) < BATCH:
                refused(lambda: trainer.step(next(batches(split))), "input 'input' has shape", "4, 20) in the plan and", "8, 20) here")
        losses = [trainer.step(part(batch, own)).loss for batch in batches(split)]
        if split == "dp" and own:
            losses.append(evaluate(trainer))
        elif split == "dp":
            losses.append(trainer.evaluate([batch for batch in list(batches(split))[:2]])["loss"])
        trainer.save()
    return own, losses


def evaluate(trainer):
    """Where one process has fewer batches than the other both are told at once, and go on."""
    data = list(batches("dp"))
    own = trainer.rank_samples
    given = [part(batch, own) for batch in data[:3 if trainer.is_first else 2]]
    begin = time.monotonic()
    refused(lambda: trainer.evaluate(given), "a batch more" if trainer.is_first else "no further batch", "all must give equally many")
    assert time.monotonic() - begin < 20, "it waited"
    return trainer.evaluate([part(batch, own) for batch in data[:2]])["loss"]


def net():
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10))


def fit(folder):
    """DistributedSampler gives each of two ranks of dp=2 every other sample; of a batch the first half is that of rank 0."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler
    rank, x, labels = int(os.environ["RANK"]), *map(torch.tensor, np.load(f"{folder}/fit.npz").values())
    data = TensorDataset(x, labels)
    loader = DataLoader(data, batch_size=BATCH // 2, sampler=DistributedSampler(data, 2, rank, shuffle=False))
    module = net()
    refused(lambda: cleave.fit(module, loader, {**RECIPE, "dims": {}}, "cpu:2", mesh="dp=2", local_batches=True), "dims: {batch: N}")
    told = cleave.fit(module, loader, RECIPE, "cpu:2", mesh="dp=2", local_batches=True, snapshots=f"{folder}/fit")
    print(json.dumps([[metrics.loss for metrics in told], float(sum(value.detach().abs().sum() for value in module.parameters()))]))


def fitted(folder):
    import torch
    x, labels = torch.randn(4 * BATCH, 20), torch.randint(0, 10, (4 * BATCH,))
    np.savez(f"{folder}/fit.npz", x=x.numpy(), labels=labels.numpy())
    module, losses = net(), []
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for at in range(0, 4 * BATCH, BATCH):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x[at:at + BATCH]), labels[at:at + BATCH])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    weight = float(sum(value.detach().abs().sum() for value in module.parameters()))
    for text in run_ranks(2, "local_batches.py", "fit", folder):
        own, sums = json.loads(text)
        assert np.allclose(own, losses, rtol=1e-5) and abs(sums - weight) < 1e-4 * weight, (own, losses, sums, weight)


def weights(folder):
    from safetensors.numpy import load_file
    path = pathlib.Path(folder, "w.safetensors")
    cleave._tool.run_tool("export", folder, "-o", path)
    return load_file(path)


def main(model):
    with tempfile.TemporaryDirectory() as folder:
        time_first(f"{folder}/time.onnx")
        for split, (options, samples) in SPLITS.items():
            plan = cleave.compile(f"{folder}/time.onnx" if split.startswith("time") else model, RECIPE, "cpu:2", f"{folder}/{split}.plan", **options)
            ways = ["global", "local", *(["others"] if split == "tp" else [])]
            ranks = [json.loads(text) for text in run_ranks(2, "local_batches.py", "rank", folder, split, *ways)]
            told = {way: [one[way] for one in ranks] for way in ("global", "local")}
            assert [own for own, _ in told["global"]] == [None, None] and [own for own, _ in told["local"]] == samples, told
            assert [losses for _, losses in told["local"]] == [losses for _, losses in told["global"]], (split, told)
            one, other = (weights(f"{folder}/{split}-{way}") for way in told)
            assert all(np.array_equal(other[name], value) for name, value in one.items()), split
            # One process runs all devices: its part is the global batch.
            with cleave.Trainer(plan, local_batches=True) as trainer:
                assert trainer.rank_samples == list(range(BATCH))
                assert [trainer.step(batch).loss for batch in batches(split)] == told["global"][0][1][:STEPS], split
        fitted(folder)
    print("local batches: as expected")


{"rank": rank, "fit": fit}.get(sys.argv[1], lambda *_: main(sys.argv[1]))(*sys.argv[2:])
