#!/usr/bin/env python3
"""One rank of PyTorch's own ways to split a model of models.py, over gloo. Rank 0 prints the seconds of its steps as JSON.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 torch_rank.py NAME ddp|fsdp2|pipeline STEPS THREADS

The pipeline has the schedule 1f1b, and is cut so that its slowest stage is the fastest, by the times of its blocks.
"""
import datetime
import itertools
import json
import sys
import time

import models
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

LIMIT = datetime.timedelta(seconds=120)


class Stage(models.Chain):
    """gloo sends contiguous tensors only, forward and backward."""

    def forward(self, *x):
        for part in x:
            if part.requires_grad:
                part.register_hook(torch.Tensor.contiguous)
        y = super().forward(*x)
        return tuple(part.contiguous() for part in y) if isinstance(y, tuple) else y.contiguous()


def seconds_of_blocks(model, blocks, samples):
    """Of a forward and a backward pass; the faster of two runs."""
    best = [float("inf")] * len(blocks)
    for _ in range(2):
        x = model.inputs(samples)
        for i, block in enumerate(blocks):
            start = time.perf_counter()
            y = block(x)
            outputs = y if isinstance(y, tuple) else (y,)
            torch.autograd.backward([o for o in outputs if o.requires_grad], [torch.ones_like(o) for o in outputs if o.requires_grad])
            best[i] = min(best[i], time.perf_counter() - start)
            x = tuple(o.detach().requires_grad_(o.is_floating_point()) for o in outputs)
            x = x if isinstance(y, tuple) else x[0]
    for block in blocks:
        block.zero_grad(set_to_none=True)
    return best


def cuts(seconds, stages):
    """Where stages begin and end: [0, 3, 5] for two."""
    def slowest(inner):
        borders = [0, *inner, len(seconds)]
        return max(sum(seconds[a:b]) for a, b in zip(borders, borders[1:]))
    return [0, *min(itertools.combinations(range(1, len(seconds)), stages - 1), key=slowest), len(seconds)]


def replicated(model, kind, rank, size):
    """A step of DDP or FSDP2."""
    chain = models.Chain(model.blocks()).train()
    if kind == "ddp":
        module = DistributedDataParallel(chain, gradient_as_bucket_view=True)
    else:
        mesh = init_device_mesh("cpu", (size,))
        for block in chain.blocks:
            if any(True for _ in block.parameters()):
                fully_shard(block, mesh=mesh)
        module = fully_shard(chain, mesh=mesh)
    optimizer = model.optimizer(module.parameters())
    x, labels = model.inputs(model.batch)[rank::size], model.labels(model.batch)[rank::size]

    def step():
        optimizer.zero_grad(set_to_none=True)
        model.loss(module(x), labels).backward()
        if model.clip_norm:
            torch.nn.utils.clip_grad_norm_(module.parameters(), model.clip_norm)
        optimizer.step()
    return step


def pipeline(model, rank, size):
    blocks = [block.train() for block in model.blocks()]
    microbatches = min(n for n in range(4, model.batch + 1) if model.batch % n == 0)
    found = [cuts(seconds_of_blocks(model, blocks, model.batch // microbatches), size)]
    distributed.broadcast_object_list(found)
    stage = Stage(blocks[found[0][rank]:found[0][rank + 1]])
    schedule = Schedule1F1B(PipelineStage(stage, rank, size, torch.device("cpu")), microbatches, loss_fn=model.loss)
    parameters = list(stage.parameters())
    optimizer = model.optimizer(parameters or [torch.nn.Parameter(torch.zeros(1))])
    x, labels = model.inputs(model.batch), model.labels(model.batch)

    def step():
        optimizer.zero_grad(set_to_none=True)
        schedule.step(*([x] if rank == 0 else []), **({"target": labels} if rank == size - 1 else {}))
        if model.clip_norm:
            square = sum((p.grad.square().sum() for p in parameters), torch.zeros(()))
            distributed.all_reduce(square)
            torch.nn.utils.clip_grads_with_norm_(parameters, model.clip_norm, square.sqrt())
        optimizer.step()
    return step


def main():
    name, kind, steps, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", timeout=LIMIT)
    rank, size, model = distributed.get_rank(), distributed.get_world_size(), models.MODELS[name]
    step = pipeline(model, rank, size) if kind == "pipeline" else replicated(model, kind, rank, size)
    times = []
    for _ in range(steps):
        distributed.barrier()
        start = time.perf_counter()
        step()
        distributed.barrier()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps(times), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
