#!/usr/bin/env python3
"""The memory that `cleave estimate` predicts for a device, over what the compiled plan takes.

    ./dev bench memory [--write docs/results/memory.md]
    ./dev bench memory --all [--models a,b] [--splits x,y] [--precision bf16] [--optimizer lamb]
    ./dev bench memory --search SEED N [--models a,b]

Both come from reports, in one run: the estimate's formulas, and the plan's own arena with its message buffers. Below 1
the estimate is too low; --all looks for that in every recorded and every small model (small_models.py) and every recorded
split, half an hour, or in those named; --search in N random splits, given or searched, of these models and of each demo
model (random_splits.py). The same seed draws the same splits; those that the compiler refuses count, and are named with
--refused. The GPT is written without weights: 4 layers of 512 features, 256 positions, 8,192 tokens, by a Python that has
numpy and onnx (this one, or CLEAVE_TORCH_PYTHON).
"""
import argparse
import json
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "test/golden"))
import golden  # noqa: E402
import random_splits  # noqa: E402
import small_models  # noqa: E402

MODELS = ("mlp", "fairscale_classifier", "mingpt_nano", "gpt2_tiny", "bert_tiny", "llama_tiny")
BATCH = 32
SPLITS = [("one device", 1, []), ("ddp, 2", 2, ["--like", "ddp", "--microbatches", "1"]),
          ("ddp, 2, 4 microbatches", 2, ["--like", "ddp", "--microbatches", "4"]),
          ("zero3, 2", 2, ["--like", "zero3", "--microbatches", "1"]),
          ("megatron, 2", 2, ["--mesh", "tp=2", "--like", "megatron-2021", "--microbatches", "1"]),
          ("zero2, 2, 2 microbatches", 2, ["--like", "zero2", "--microbatches", "2"]),
          ("pp=2, zb-h1", 2, ["--mesh", "pp=2", "--schedule", "zb-h1", "--microbatches", "4"]),
          ("pp=2, 4 microbatches", 2, ["--mesh", "pp=2", "--schedule", "1f1b", "--microbatches", "4"]),
          ("pp=2, full recomputation", 2,
           ["--mesh", "pp=2", "--schedule", "1f1b", "--microbatches", "4", "--recompute", "full"])]
# The splits of --all, beside the recorded ones.
MORE_SPLITS = {"tp4": (4, ["--mesh", "tp=4"]),
               "tp2m4": (2, ["--mesh", "tp=2", "--microbatches", "4"]),
               "tp2pp2zbh1": (4, ["--mesh", "pp=2,tp=2", "--schedule", "zb-h1"])}
BEGIN, END = "<!-- memory of plans -->", "<!-- end of memory of plans -->"


def gpt(scratch):
    folder = scratch / "gpt"
    folder.mkdir()
    python = golden_python()
    subprocess.run([python, ROOT / "models/gpt/make_gpt.py", "--layers", "4", "--hidden", "512", "--heads", "8", "--vocab",
                    "8192", "--seq", "256", "-o", folder / "model.onnx"], check=True, stdout=subprocess.DEVNULL)
    (folder / "recipe.yaml").write_text("loss: {kind: softmax_cross_entropy, labels: {name: labels}}\n"
                                        "optimizer: {kind: adamw, lr: 1.0e-4}\ninit: {kind: normal, std: 0.02}\n")
    return folder


def golden_python():
    for python in (os.environ.get("CLEAVE_TORCH_PYTHON"), sys.executable):
        if python and subprocess.run([python, "-c", "import numpy, onnx"], capture_output=True).returncode == 0:
            return python
    return None


def ratio(build, scratch, folder, devices, flags, precision="fp32", optimizer=None):
    cleave, plan = build / "bin/cleave", scratch / "x.plan"
    given = [folder / "model.onnx", "--recipe", folder / "recipe.yaml", "--cluster", f"cpu:{devices}", "--recompute", "none",
             "--set", "dims={batch: %d}" % BATCH, "--set", f"precision={precision}"]
    if optimizer:
        given += ["--set", "optimizer={kind: %s, lr: 0.01}" % optimizer]
    if "--recompute" in flags:
        given = [part for part in given if part not in ("--recompute", "none")]
    golden.call([cleave, "compile", *given, *flags, "-o", plan])
    predicted = json.loads(golden.call([cleave, "report", plan, "--format", "json"]))["predicted"]
    return predicted["estimated_memory_bytes_per_device"] / predicted["memory_bytes_per_device"]


def prepare(model, scratch):
    return small_models.write(model, scratch) if model in small_models.MODELS else golden.prepare(model, scratch)


def recorded():
    return sorted(path.name for path in golden.DATA.iterdir() if (path / "train.json").exists())


def too_low(build, scratch, models, splits, precision, optimizer):
    """Prints the ratio of models in recorded splits (all, or those named), and counts what is below 1."""
    count, found = 0, 0
    known = {**golden.SPLITS, **MORE_SPLITS}
    for model in models or [*recorded(), *small_models.MODELS]:
        folder = prepare(model, scratch)
        for split in splits or known:
            devices, flags = known[split]
            try:
                value = ratio(build, scratch, folder, devices, flags, precision, optimizer)
            except golden.Refused:
                continue  # no such split of this model
            count += 1
            found += value < 1
            print(f"{model} {split}: {value:.3f}{' TOO LOW' if value < 1 else ''}", flush=True)
    print(f"{found} of {count} plans take more than estimated")
    return found


class TooLarge(Exception):
    """The search held that the split fits; the plan does not: the estimate was too low."""


# Demo models beside the recorded ones: graph, recipe and the batch that is doubled.
DEMOS = {"demo/mingpt": ("mingpt/nano", 8), "demo/classifier": ("fairscale_classifier/classifier", 10),
         "demo/resnet": ("resnet_cifar/resnet8", 4)}


def models_of_search(scratch, named):
    """Names, and of each its graph, its recipe and its batch."""
    for model in named or [*recorded(), *DEMOS, *small_models.MODELS]:
        if model in DEMOS:
            path, batch = DEMOS[model]
            yield model, ROOT / "models" / f"{path}.onnx", ROOT / "models" / f"{path}.yaml", batch
        else:
            folder = prepare(model, scratch)
            dims = json.loads((folder / "recipe.yaml").read_text())["dims"]
            yield model, folder / "model.onnx", folder / "recipe.yaml", dims["batch"]


def cluster_of(scratch, split, gib):
    """cpu:N with so much memory a device."""
    file = scratch / "limited.yaml"
    file.write_text(f"name: limited\nnodes: 1\ndevices_per_node: {split.devices}\nhost_memory_gib: 64\n"
                    f"device: {{kind: cpu, memory_gib: {gib:.9f}, tflops: {{fp32: 0.1}}, memory_gbps: 10}}\n"
                    "links: {node: {gbps: 100, latency_us: 10, topology: memory}, host: {gbps: 50}}\n")
    return file


def searched(build, graph, recipe, split, cluster, plan):
    """Bytes that are estimated and that the plan takes; and how `cleave` is called."""
    command = [build / "bin/cleave", "compile", graph, "--recipe", recipe, "--cluster", cluster, *split.flags,
               *(part for override in split.overrides for part in ("--set", override)), "-o", plan, "--json"]
    try:
        predicted = json.loads(golden.call(command))["predicted"]
    except golden.Refused as refused:
        if "and the cluster grants it" in str(refused):  # the plan's verifier
            raise TooLarge(str(refused)) from None
        raise
    return predicted["estimated_memory_bytes_per_device"], predicted["memory_bytes_per_device"]


def told_ratios(ratios):
    return f"{len(ratios)} plans" + (f", least {min(ratios):.4f}, median {statistics.median(ratios):.3f}" if ratios else "")


def search(build, scratch, seed, count, named, shows_refused):
    """Prints splits whose plan takes more than estimated; counts them."""
    ratios, refused, low, broken = [], 0, 0, 0
    for model, graph, recipe, batch in models_of_search(scratch, named):
        before = len(ratios)
        for number in range(count):
            split = random_splits.draw(random.Random(f"{seed} {model} {number}"), batch,
                                       "expert" in model or "gshard" in model)
            told = f"{model} {number}: cpu:{split.devices} {shlex.join([*split.flags, *split.overrides])}"
            cluster = f"cpu:{split.devices}"
            try:
                for limit in (0, split.limit) if split.limit else (0,):
                    if limit:
                        gib = limit * estimated / 2**30
                        cluster = cluster_of(scratch, split, gib)
                        told += f" memory_gib {gib:.9f}"
                    estimated, taken = searched(build, graph, recipe, split, cluster, scratch / "x.plan")
                    ratios.append(estimated / taken)
                    if estimated < taken:
                        low += 1
                        print(f"{told}\n  {estimated / taken:.4f} TOO LOW: {estimated:.0f} of {taken:.0f} bytes", flush=True)
            except TooLarge as reason:
                low += 1
                print(f"{told}\n  TOO LOW: {reason}", flush=True)
            except golden.Refused as reason:
                refused += 1
                if shows_refused:
                    print(f"{told}\n  refused: {reason}", flush=True)
            except golden.Failure as reason:
                broken += 1
                print(f"{told}\n  FAILED: {reason}", flush=True)
        print(f"{model}: {told_ratios(ratios[before:])}", flush=True)
    print(f"{low} too low, {broken} failed, {refused} splits refused; {told_ratios(ratios)}")
    return low + broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--write", type=pathlib.Path, help="the page whose table is replaced")
    parser.add_argument("--all", action="store_true", help="recorded models and splits instead of the table")
    parser.add_argument("--search", nargs=2, type=int, metavar=("SEED", "N"), help="N random splits of each model instead")
    parser.add_argument("--refused", action="store_true", help="of --search: print the splits that are refused, too")
    parser.add_argument("--models", type=lambda text: text.split(","), help="of --all and --search: these only")
    parser.add_argument("--splits", type=lambda text: text.split(","), help="of --all: these only")
    parser.add_argument("--precision", default="fp32", help="of --all")
    parser.add_argument("--optimizer", help="of --all: this one instead of the models' own")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    lines = ["| model | " + " | ".join(name for name, _, _ in SPLITS) + " |", "|---" * (len(SPLITS) + 1) + "|"]
    with tempfile.TemporaryDirectory(prefix="cleave-memory-") as name:
        scratch = pathlib.Path(name)
        if arguments.search:
            return 1 if search(build, scratch, *arguments.search, arguments.models, arguments.refused) else 0
        if arguments.all:
            return 1 if too_low(build, scratch, arguments.models, arguments.splits, arguments.precision,
                                arguments.optimizer) else 0
        folders = {model: golden.prepare(model, scratch) for model in MODELS}
        if golden_python():
            folders["GPT 4x512"] = gpt(scratch)
        for model, folder in folders.items():
            row = [f"{ratio(build, scratch, folder, devices, flags):.2f}" for _, devices, flags in SPLITS]
            lines.append(f"| {model} | " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
    if arguments.write:
        text = arguments.write.read_text()
        before, rest = text.split(BEGIN)
        arguments.write.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
