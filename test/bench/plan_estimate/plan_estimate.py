#!/usr/bin/env python3
"""What the search predicts of a plan beside the plan itself: its step, simulated command by command, and its memory.

    ./dev bench plan-estimate [--write docs/results/plan-estimate.md]

Recorded models on CPUs in the splits of `./dev bench memory`, and GPTs on GPUs in every preset that fits: there also whether the
presets come in the same order (Spearman's rank correlation), and how much slower the simulated step of the predicted best is than
the best simulated one. Nothing runs.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "test/golden"), str(ROOT / "test/bench/memory")]
import golden  # noqa: E402
import memory  # noqa: E402

BEGIN, END = "<!-- estimates of plans -->", "<!-- end of estimates of plans -->"
PRESETS = ("ddp", "zero1", "zero2", "zero3", "megatron", "gpipe")
# name: (layers, hidden, heads, words, positions), batch, cluster
GPTS = {"GPT 124M": ((12, 768, 12, 50304, 1024), 16, "h200:1"),
        "GPT 1.3B": ((24, 2048, 16, 50304, 1024), 64, "a100-80g:8"),
        "GPT 7B": ((32, 4096, 32, 50304, 2048), 128, "a100-80g:8x2"),
        "GPT 39B": ((48, 8192, 64, 51200, 2048), 512, "a100-80g:8x16")}


def compared(build, scratch, model, recipe, flags):
    """(predicted, simulated) seconds, (estimated, planned) bytes. Raises golden.Refused where there is no such plan."""
    cleave, plan = build / "bin/cleave", scratch / "x.plan"
    golden.call([cleave, "compile", model, "--recipe", recipe, *flags, "--no-proof", "--accept-doubts", "-o", plan])
    predicted = json.loads(golden.call([cleave, "report", plan, "--format", "json"]))["predicted"]
    simulated = json.loads(golden.call([cleave, "simulate", plan, "--json"]))
    return (predicted["step_time_s"], simulated["step_s"]), (predicted["estimated_memory_bytes_per_device"], predicted["memory_bytes_per_device"])


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(i) for i in range(len(values))]


def spearman(one, other):
    if len(one) < 3:
        return None
    a, b, n = ranks(one), ranks(other), len(one)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b)) / (n * (n * n - 1))


def on_cpus(build, scratch, rows):
    times, sizes = [], []
    rows += ["| model | " + " | ".join(name for name, _, _ in memory.SPLITS) + " |", "|---" * (len(memory.SPLITS) + 1) + "|"]
    for model in memory.MODELS:
        folder, cells = golden.prepare(model, scratch), []
        for name, devices, flags in memory.SPLITS:
            try:
                (predicted, simulated), (estimated, planned) = compared(
                    build, scratch, folder / "model.onnx", folder / "recipe.yaml",
                    ["--cluster", f"cpu:{devices}", "--set", "dims={batch: %d}" % memory.BATCH, *flags])
            except golden.Refused:
                cells.append("-")
                continue
            times.append(predicted / simulated)
            sizes.append(estimated / planned)
            cells.append(f"{times[-1]:.2f} · {sizes[-1]:.2f}")
        rows.append(f"| {model} | " + " | ".join(cells) + " |")
        print(rows[-1], flush=True)
    within = sum(abs(ratio - 1) <= 0.08 for ratio in times)
    rows += ["", f"{within} of {len(times)} plans have a predicted step within 8 % of the simulated one (median ratio "
             f"{statistics.median(times):.2f}), and {sum(1 <= ratio <= 1.1 for ratio in sizes)} an estimated memory of 1.00 to 1.10 times the plan's "
             f"(median {statistics.median(sizes):.2f})."]


def on_gpus(build, scratch, rows):
    rows += ["| model | preset | predicted | simulated | ratio | estimated memory | the plan's | ratio |", "|---" * 8 + "|"]
    orders = []
    for name, ((layers, hidden, heads, words, positions), batch, cluster) in GPTS.items():
        model = scratch / "gpt.onnx"
        subprocess.run([sys.executable, str(ROOT / "models/gpt/make_gpt.py"), "--layers", str(layers), "--hidden", str(hidden), "--heads", str(heads),
                        "--vocab", str(words), "--seq", str(positions), "-o", str(model)], check=True, stdout=subprocess.DEVNULL)
        predictions, simulations = [], []
        for preset in PRESETS if not cluster.endswith(":1") else ("ddp",):
            try:
                (predicted, simulated), (estimated, planned) = compared(
                    build, scratch, model, ROOT / "models/gpt/gpt.yaml", ["--set", f"dims.batch={batch}", "--cluster", cluster, "--like", preset])
            except (golden.Refused, golden.Failure) as why:
                print(f"{name}, {preset}: {str(why).strip().splitlines()[-1][:150]}", flush=True)
                continue
            predictions.append(predicted)
            simulations.append(simulated)
            rows.append(f"| {name}, {cluster} | {preset} | {1e3 * predicted:.1f} ms | {1e3 * simulated:.1f} ms | {predicted / simulated:.2f} | "
                        f"{estimated / 2**30:.2f} GiB | {planned / 2**30:.2f} GiB | {estimated / planned:.2f} |")
            print(rows[-1], flush=True)
        order = spearman(predictions, simulations)
        if order is not None:
            regret = simulations[predictions.index(min(predictions))] / min(simulations) - 1
            orders.append(f"{name}: rank correlation {order:.2f} of {len(predictions)} presets, the predicted best {100 * regret:.1f} % slower than the best")
    rows += ["", *(f"- {line}." for line in orders)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--write", type=pathlib.Path, help="the page whose tables are replaced")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = ["## CPUs", "", "Each cell: predicted over simulated step, and estimated over planned memory.", ""]
        on_cpus(options.build, pathlib.Path(folder), rows)
        rows += ["", "## GPUs", ""]
        on_gpus(options.build, pathlib.Path(folder), rows)
    print("\n".join(rows))
    if options.write:
        page = options.write.read_text()
        head, _, rest = page.partition(BEGIN)
        options.write.write_text(head + BEGIN + "\n" + "\n".join(rows) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
