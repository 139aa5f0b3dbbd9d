#!/usr/bin/env python3
"""Bytes that a device sends in one training step, counted by the executor, against the published formulas.

    ./dev bench volumes                                          prints the table, writes docs/communication-volumes.md
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


# What ZeRO-3 does not gather again for the backward pass, which does not read it: biases, the position table, and the
# scales of normalizations, whose broadcasts are kept.
UNREAD = L * (H + 3 * H + H + H + 4 * H + H + 2 * H) + 2 * H + S * H


class Row:
    """`parts`: by phase and operation, (what, formula as text, bytes) that add up to what is counted."""

    def __init__(self, title, devices, flags, parts):
        self.title, self.devices, self.flags, self.parts = title, devices, flags, parts


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
    return Row(f"Megatron tensor parallelism, t={t}", t, ["--like", "megatron"], {
        ("forward", "all_reduce"): [
            ("activations", "4bsh(t-1)/t a layer", layer),
            (f"logits: {V} classes do not divide, so the head is split along h and sums up", "2bsV(t-1)/t",
             B * S * V * again * F32)],
        ("forward", "all_gather"): [("embeddings, whose table is split along h", "bsh(t-1)/t",
                                     B * S * H * ring_pass(t) * F32)],
        ("backward", "all_reduce"): [
            ("activations' gradients", "4bsh(t-1)/t a layer", layer),
            ("last normalization, split along h: two sums a row", "4bs(t-1)/t", 2 * B * S * again * F32)],
        ("backward", "all_gather"): [("the head's gradient, split along h", "bsh(t-1)/t",
                                      B * S * H * ring_pass(t) * F32)],
    })


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
        "megatron2": megatron(2), "ulysses2": ulysses(2), "ulysses4": ulysses(4), "ring2": ring(2), "ring4": ring(4)}


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
published formulas. Written by `./dev bench volumes`; `test/cli/volumes.test` compares some rows in every test run.

The model is the golden `gpt2_tiny`: b = %d samples, s = %d positions, h = %d, %d layers, V = %d classes, Ψ = %d
parameters, in fp32 (4 bytes). A device's count is the mean over all devices: of a scalar's all-reduce one device sends
more than the others. Formulas count elements: Rajbhandari et al. 2020 (ZeRO; data parallelism 2Ψ(N-1)/N as a ring
all-reduce), Shoeybi et al. 2019 (Megatron: two all-reduces forward and two backward a layer, 8bsh(t-1)/t), Jacobs et
al. 2023 (Ulysses: four all-to-alls forward and four backward a layer, 8bsh(P-1)/P²), Liu et al. 2023 (ring attention).

One measured number stands beside all lines of its phase and operation; it is their sum. Ψ' are the parameters that
the backward pass does not read (biases, positions, scales of normalizations) and does not gather again.

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
        model = golden.prepare("gpt2_tiny", scratch)
        for name in args.only.split(",") if args.only else ROWS:
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
