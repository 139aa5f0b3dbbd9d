#!/usr/bin/env python3
"""Did a run of make_models.py's chain follow PipeDream-2BW's rule, W(t+1) = W(t) - lr g(W(t-1))?

    delayed_weights.py samples FILE.npz                        makes the data: 4 batches of 8
    delayed_weights.py check WEIGHTS.safetensors FILE.npz METRICS.jsonl LR

The chain of tanh layers, its mean squared error and its gradients are computed here, in doubles.
"""
import json
import struct
import sys

import numpy as np

BATCH, STEPS = 8, 4


def read(path):
    raw = open(path, "rb").read()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    return {name: np.frombuffer(data[slice(*e["data_offsets"])], "<f4").reshape(e["shape"]).astype(np.float64)
            for name, e in header.items() if name != "__metadata__"}


def loss_and_gradients(w, x, target):
    names, kept = [f"layer{i}" for i in range(8)], [x]
    for name in names:
        kept.append(np.tanh(kept[-1] @ w[name + ".weight"] + w[name + ".bias"]))
    off = kept[-1] @ w["head.weight"] + w["head.bias"] - target
    loss, d, gradients = (off ** 2).mean(), 2 * off / off.size, {}
    for i, name in reversed(list(enumerate(names + ["head"]))):
        if name != "head":
            d = d * (1 - kept[i + 1] ** 2)
        gradients[name + ".weight"], gradients[name + ".bias"] = kept[i].T @ d, d.sum(0)
        d = d @ w[name + ".weight"].T
    return loss, gradients


def losses(start, samples, rate, delay):
    now, before, seen = start, start, []
    for t in range(STEPS):
        batch = slice(t * BATCH, (t + 1) * BATCH)
        loss, gradients = loss_and_gradients(before if delay else now, samples["x"][batch], samples["labels"][batch])
        seen.append(loss)
        now, before = {k: v - rate * gradients[k] for k, v in now.items()}, now
    return seen


if sys.argv[1] == "samples":
    rng = np.random.default_rng(7)
    np.savez(sys.argv[2], x=rng.standard_normal((BATCH * STEPS, 256)).astype("f"),
             labels=rng.standard_normal((BATCH * STEPS, 8)).astype("f"))
else:
    start, samples, rate = read(sys.argv[2]), np.load(sys.argv[3]), float(sys.argv[5])
    measured = [json.loads(line)["loss"] for line in open(sys.argv[4])]
    delayed, prompt = (np.array(losses(start, samples, rate, delay)) for delay in (True, False))
    assert np.allclose(measured, delayed, rtol=1e-5), (measured, delayed)
    assert abs(delayed - prompt)[1:].max() > 1e-2 * abs(prompt).max(), (delayed, prompt)
    print("the losses of delayed weights")
