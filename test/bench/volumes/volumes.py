#!/usr/bin/env python3
"""Bytes that a device sends in one training step, counted by the executor, against the published formulas.

    ./dev bench volumes                                          prints the table, writes docs/results/communication-volumes.md
    volumes.py --build BUILD [--only ddp4,ring2] [--write FILE]

Every row compiles the golden gpt2_tiny with one split, runs a step with --counters and compares what one device sent.
What a formula does not speak of has a formula of its own here, with the reason: every counted byte belongs to one.
Exit status 1 when a count differs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "test/golden"))
import golden  # noqa: E402

# The model: batch, sequence, hidden size, layers, vocabulary, heads; numbers of parameters. All float32.
B, S, H, L, V, A = 8, 32, 64, 2, 211, 4
PSI = 115648
F32, I64 = 4, 8


def ring_pass(n):
    """Share of a tensor that a device sends in a reduce-scatter or all-gather over n."""
    return (n - 1) / n


# Parameters that ZeRO-3 does not gather again for the backward pass, which does not read them: biases, the position
# table, and the scales of normalizations, whose broadcasts are kept.
UNREAD = L * (H + 3 * H + H + H + 4 * H + H + 2 * H) + 2 * H + S * H


class Row:
    """`parts`: by phase and operation, (what, formula as text, bytes) that add up to what is counted."""

    def __init__(self, title, devices, flags, parts, model="gpt2_tiny"):
        self.title, self.devices, self.flags, self.parts, self.model = title, devices, flags, parts, model


def scalars(n, count):
    return "scalars of the loss and the gradient norm", f"{2 * count}(N-1)/N", 2 * count * ring_pass(n) * F32


def data_parallel(n):
    return Row(f"data parallel, N={n}", n, ["--like", "ddp"], {
        ("update", "all_reduce"): [("gradients", "2Ψ(N-1)/N", 2 * PSI * ring_pass(n) * F32), scalars(n, 1)],
        ("backward", "all_reduce"): [scalars(n, 1)]})


def zero(stage, n):
    parts = {("update", "reduce_scatter"): [("gradients", "Ψ(N-1)/N", PSI * ring_pass(n) * F32)],
             ("update", "all_reduce"): [scalars(n, 2)], ("backward", "all_reduce"): [scalars(n, 1)]}
    parameters = ("parameters", "Ψ(N-1)/N", PSI * ring_pass(n) * F32)
    if stage < 3:
        parts["update", "all_gather"] = [parameters]
    else:
        parts["forward", "all_gather"] = [parameters]
        parts["backward", "all_gather"] = [("parameters again", "(Ψ-Ψ')(N-1)/N", (PSI - UNREAD) * ring_pass(n) * F32)]
    return Row(f"ZeRO-{stage}, N={n}", n, ["--like", f"zero{stage}"], parts)


def megatron(t):
    again = 2 * ring_pass(t)  # an all-reduce, of every element
    layer = L * 2 * B * S * H * again * F32
    # V classes do not divide: embedding and head are whole on every device.
    return Row(f"Megatron tensor parallelism, t={t}", t, ["--like", "megatron-2021"], {
        ("forward", "all_reduce"): [("activations", "4bsh(t-1)/t a layer", layer)],
        ("backward", "all_reduce"): [("activations' gradients", "4bsh(t-1)/t a layer", layer)],
    })


def megatron_sp(t):
    # The head has its part of the positions, embedding and head are whole on every device.
    half = L * 2 * B * S * H * ring_pass(t) * F32  # two of a layer's reduce-scatters, or all-gathers
    parts = {
        ("forward", "all_gather"): [("activations", "2bsh(t-1)/t a layer", half)],
        ("forward", "reduce_scatter"): [("activations", "2bsh(t-1)/t a layer", half)],
        ("backward", "all_gather"): [("activations' gradients", "2bsh(t-1)/t a layer", half)],
        ("backward", "reduce_scatter"): [("activations' gradients", "2bsh(t-1)/t a layer", half)],
        ("backward", "all_reduce"): [loss(t)],
    }
    return Row(f"Megatron sequence parallelism, t={t}", t, ["--like", "megatron-sp"], parts)


# Parameters of a layer's products (12h²), and all others: embeddings, biases, scales.
PRODUCTS = L * 12 * H * H
OTHERS = PSI - PRODUCTS


def plane(q, d):
    """2D (d=1) and 2.5D: every product gathers its input along the rows of the grid and its weight along the columns."""
    pass_ = (q - 1) / q**2  # of a tensor split over q*q devices
    inputs = L * 7 * B * S * H / d * pass_ * F32
    logits = B * S * V / d * pass_ * F32
    sums = (2 * L + 1) * 2 * 2 * B * S / d * pass_ * F32
    over = "/d" if d > 1 else ""
    parts = {
        ("forward", "all_gather"): [("inputs of the products", f"7bsh(q-1)/q²{over} a layer", inputs),
                                    ("parameters, 12h² of them a layer in products", "Ψ(q-1)/q²", PSI * pass_ * F32)],
        ("forward", "reduce_scatter"): [("logits, summed up: the classes do not divide", f"bsV(q-1)/q²{over}", logits)],
        ("forward", "all_reduce"): [("normalizations: two sums a row", f"4bs(q-1)/q²{over} each", sums)],
        ("backward", "all_gather"): [("inputs of the products again", f"7bsh(q-1)/q²{over} a layer", inputs),
                                     ("parameters again", "(Ψ-Ψ')(q-1)/q²", (PSI - UNREAD) * pass_ * F32),
                                     ("the logits' gradient", f"bsV(q-1)/q²{over}", logits)],
        ("backward", "reduce_scatter"): [("inputs' gradients", f"7bsh(q-1)/q²{over} a layer", inputs)],
        ("backward", "all_reduce"): [("normalizations: two sums a row", f"4bs(q-1)/q²{over} each", sums), loss(q * q * d)],
        ("update", "reduce_scatter"): [("gradients of parameters, 12h² a layer in products", "Ψ(q-1)/q²", PSI * pass_ * F32)],
    }
    if d > 1:
        parts["update", "all_reduce"] = [("gradients over the depth", "2Ψ(d-1)/dq²", 2 * PSI * (d - 1) / d / q**2 * F32),
                                         ("scalars of loss and gradient norm", "2(N-1)/N + 2(q²-1)/q²",
                                          2 * (ring_pass(d * q * q) + ring_pass(q * q)) * F32)]
    return Row(f"2.5D, q={q}, d={d}" if d > 1 else f"2D, q={q}", d * q * q, ["--like", "2.5d" if d > 1 else "2d"], parts)


def cube(q):
    """3D: every product gathers its input over one axis, its weight over another, and scatters its sum over the third."""
    pass_ = (q - 1) / q**3
    flat = (q - 1) / q**2  # of what is split over two axes only
    inputs, outputs = L * 7 * B * S * H * pass_ * F32, L * 9 * B * S * H * pass_ * F32
    sums = (2 * L + 1) * 2 * 2 * B * S * pass_ * F32
    weights = PRODUCTS * pass_ * F32
    return Row(f"3D, q={q}", q**3, ["--like", "3d"], {
        ("forward", "all_gather"): [("inputs of the products", "7bsh(q-1)/q³ a layer", inputs),
                                    ("weights of the products", "12h²(q-1)/q³ a layer", weights),
                                    ("other parameters, which lie over two axes", "(Ψ-12h²L)(q-1)/q²", OTHERS * flat * F32)],
        ("forward", "reduce_scatter"): [("results of the products", "9bsh(q-1)/q³ a layer", outputs)],
        ("forward", "all_reduce"): [("normalizations: two sums a row", "4bs(q-1)/q³ each", sums),
                                    ("logits, summed up: the classes do not divide", "2bsV(q-1)/q³", 2 * B * S * V * pass_ * F32)],
        ("backward", "all_gather"): [("results' gradients", "9bsh(q-1)/q³ a layer", outputs),
                                     ("inputs of the products again", "7bsh(q-1)/q³ a layer", inputs),
                                     ("weights of the products again", "12h²(q-1)/q³ a layer", weights),
                                     ("the head's weight again", "hV(q-1)/q²", H * V * flat * F32)],
        ("backward", "reduce_scatter"): [("inputs' gradients", "7bsh(q-1)/q³ a layer", inputs)],
        ("backward", "all_reduce"): [("normalizations: two sums a row", "4bs(q-1)/q³ each", sums), loss(q * q)],
        ("update", "reduce_scatter"): [("gradients of the weights", "12h²(q-1)/q³ a layer", weights),
                                       ("gradients of other parameters", "(Ψ-12h²L)(q-1)/q²", OTHERS * flat * F32)],
    })


# The golden gshard_tiny: batch, experts, capacity, width.
G_B, G_E, G_C, G_M = 8, 4, 3, 16


def experts(p):
    exchange = 2 * G_E * G_B * G_C * G_M * ring_pass(p) / p * F32
    return Row(f"expert parallelism, P={p}, model gshard_tiny: E = {G_E} experts, C = {G_C} places a sequence, width M = {G_M}", p,
               ["--mesh", f"ep={p}"], {
        ("forward", "all_to_all"): [("tokens to their experts and back", "2EbCM(P-1)/P²", exchange)],
        ("backward", "all_to_all"): [("their gradients", "2EbCM(P-1)/P²", exchange)],
        ("backward", "all_reduce"): [loss(p)],
    }, "gshard_tiny")


def ulysses(p):
    layer = L * 4 * B * S * H * ring_pass(p) / p * F32
    return Row(f"Ulysses, P={p}", p, ["--like", "ulysses"], {
        ("forward", "all_to_all"): [("q, k, v and the result", "4bsh(P-1)/P² a layer", layer)],
        ("backward", "all_to_all"): [("their gradients", "4bsh(P-1)/P² a layer", layer)],
        ("backward", "all_reduce"): [loss(p)],
    })


def ring(p):
    travel = L * 2 * B * S * H * ring_pass(p) * F32
    positions = ("positions of the keys, 8 bytes each, for the causal mask", "8s(P-1)/P a layer", L * S * I64 * ring_pass(p))
    return Row(f"ring attention, P={p}", p, ["--like", "ring"], {
        ("forward", "shift"): [("k and v", "2bsh(P-1)/P a layer", travel), positions],
        ("backward", "shift"): [("k and v again", "2bsh(P-1)/P a layer", travel),
                                ("their gradients", "2bsh(P-1)/P a layer", travel), positions],
        ("backward", "all_reduce"): [loss(p)],
    })


def loss(n):
    return "the loss's sum", "2(N-1)/N", 2 * ring_pass(n) * F32


# The update phase of tensor and sequence splits is not part of their formulas; it is shown, not compared.
ROWS = {"ddp4": data_parallel(4), "zero1x4": zero(1, 4), "zero2x4": zero(2, 4), "zero3x4": zero(3, 4),
        "megatron2": megatron(2), "megatronsp2": megatron_sp(2), "megatronsp4": megatron_sp(4), "grid2d": plane(2, 1),
        "grid2.5d": plane(2, 2), "grid3d": cube(2), "experts2": experts(2), "experts4": experts(4), "ulysses2": ulysses(2), "ulysses4": ulysses(4), "ring2": ring(2), "ring4": ring(4)}


def measure(build, model, row, scratch):
    """(phase, operation) -> bytes that a device sends in a step, the mean of all devices."""
    cleave, plan, counters = build / "bin/cleave", scratch / "x.plan", scratch / "counters.json"
    golden.call([cleave, "compile", model / "model.onnx", "--recipe", model / "recipe.yaml", "--cluster",
                 f"cpu:{row.devices}", "-o", plan] + row.flags)
    golden.call([cleave, "run", plan, "--steps", "1", "--counters", counters])
    sent = {}
    for device in json.loads(counters.read_text())["devices"]:
        for one in device["sent"]:
            if one["fragment"] != "evaluate":
                key = one["phase"], one["op"]
                sent[key] = sent.get(key, 0) + one["bytes"] / row.devices
    return {key: count for key, count in sent.items() if count}


def compare(row, sent):
    """Lines (split, phase, operation, what, formula, bytes by formula, measured), and whether all agree."""
    lines, agrees = [], True
    for key in sorted(set(sent) | set(row.parts)):
        parts, measured = row.parts.get(key), sent.get(key, 0)
        if parts is None:
            agrees &= key[0] == "update"
            lines.append((row.title, *key, "", "gradients and parameters, as in data parallelism" if key[0] == "update" else "not expected", None, measured))
            continue
        agrees &= abs(sum(part[2] for part in parts) - measured) < 0.5
        for number, (what, formula, count) in enumerate(parts):
            lines.append((row.title, *key, what, formula, count, measured if number == 0 else None))
    return lines, agrees


def render(lines):
    text = ["""# Communication volumes

Bytes that one device sends in one training step, counted by the executor (`cleave run --counters`), beside the
published formulas. `./dev bench volumes` writes this page; `test/cli/volumes.test` compares some rows in every test run.

The model is the golden `gpt2_tiny`: b = %d samples, s = %d positions, h = %d, %d layers, V = %d classes, Ψ = %d
parameters, in fp32 (4 bytes). A count is the mean over all devices, because one device sends more than the others in the
all-reduce of a scalar. One measured number stands beside all lines of its phase and operation; it is their sum. Ψ' are the
parameters that the backward pass does not read (biases, positions, scales of normalizations) and does not gather again.

| method | source | volume in elements |
|---|---|---|
| data parallelism | Rajbhandari et al. 2020 (ZeRO) | 2Ψ(N-1)/N, a ring all-reduce |
| Megatron | Shoeybi et al. 2019 | two all-reduces forward and two backward a layer: 8bsh(t-1)/t |
| Megatron's sequence parallelism | Korthikanti et al. 2022 | each all-reduce as a reduce-scatter and an all-gather |
| Ulysses | Jacobs et al. 2023 | four all-to-alls forward and four backward a layer: 8bsh(P-1)/P² |
| ring attention | Liu et al. 2023 | keys and values around the ring |
| 2D | Xu et al. 2021 (Optimus) | SUMMA moves 7bsh + 12h² forward and twice that backward a layer, each of q² devices its part times (q-1); its broadcasts bring a device the same blocks as the all-gathers here |
| 2.5D | Wang et al. 2021 (Tesseract) | samples over d such planes, weights once in each |
| 3D | Bian et al. 2021 | (q-1)/q³ of each product's input, weight and result |
| experts | Lepikhin et al. 2020 (GShard) | two all-to-alls forward and two backward of [E, b, C, M] |

| split | phase | operation | what | formula | by formula | measured |
|---|---|---|---|---|---|---|""" % (B, S, H, L, V, PSI)]
    for title, phase, op, what, formula, count, measured in lines:
        number = lambda value: "" if value is None else f"{value:,.0f}"
        text.append(f"| {title} | {phase} | {op} | {what} | {formula} | {number(count)} | {number(measured)} |")
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=pathlib.Path)
    args = parser.parse_args()
    lines, failed = [], []
    with tempfile.TemporaryDirectory(prefix="cleave-volumes-") as folder:
        scratch = pathlib.Path(folder)
        for name in args.only.split(",") if args.only else ROWS:
            model = golden.prepare(ROWS[name].model, scratch)
            made, agrees = compare(ROWS[name], measure(args.build.resolve(), model, ROWS[name], scratch))
            lines += made
            print(f"{'equal' if agrees else 'DIFFERS'}: {ROWS[name].title}", flush=True)
            if not agrees:
                failed.append(name)
                for line in made:
                    print("   ", *line)
    if args.write:
        args.write.write_text(render(lines))
    else:
        print(render(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
