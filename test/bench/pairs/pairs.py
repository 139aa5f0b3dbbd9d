#!/usr/bin/env python3
"""Steps of two plans that differ in one thing, in turns on the same cores.

    pairs.py --build BUILD uneven        a batch that does not divide beside its neighbour that does
    pairs.py --build BUILD chunks        a head with its loss in chunks beside logits that are stored whole
    pairs.py --build BUILD experts       experts on one device and on two, beside PyTorch with a loop over them

Each round runs every plan for a few steps, one plan after the other; a plan's figure is the median of its steps after the first
three of each round.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ROUNDS, STEPS, WARMUP = 4, 8, 3
GPT = ["--layers", "2", "--hidden", "256", "--heads", "4", "--vocab", "50257", "--seq", "256"]
MINGPT = (ROOT / "models/mingpt/8x512.onnx", ROOT / "models/mingpt/8x512.yaml")


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=900)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def uneven(folder):
    """name -> (model, recipe, flags)"""
    return {f"minGPT 8x512, {batch} samples, {split}": (*MINGPT, ["--set", f"dims.batch={batch}", "--cluster", "cpu:2", *flags])
            for split, flags in (("dp=2", ["--mesh", "dp=2"]), ("4 microbatches", ["--mesh", "tp=2", "--microbatches", "4"]))
            for batch in (7, 8)}


def chunks(folder):
    model, recipe = folder / "gpt.onnx", folder / "gpt.yaml"
    call("python3", ROOT / "models/gpt/make_gpt.py", *GPT, "-o", model)
    recipe.write_text("dims: {batch: 8}\nloss: {kind: softmax_cross_entropy}\noptimizer: {kind: adamw, lr: 1e-4}\n"
                      "init: {kind: normal, std: 0.02}\ndata: {kind: synthetic}\n")
    return {f"GPT 2x256, 50,257 words, 8 x 256, --chunk {count}": (model, recipe, ["--cluster", "cpu:1", "--chunk", count, "--accept-doubts"])
            for count in ("none", "2", "4")}


def experts(folder):
    model, recipe = folder / "experts.onnx", folder / "experts.yaml"
    call(sys.executable, HERE / "experts.py", "export", model)
    recipe.write_text("dims: {batch: 8}\nloss: {kind: softmax_cross_entropy}\noptimizer: {kind: adamw, lr: 1e-4}\n"
                      "data: {kind: synthetic}\n")
    return {f"2 layers of 8 experts, 1,024 tokens, {split}": (model, recipe, flags)
            for split, flags in (("one device", ["--cluster", "cpu:1"]), ("dp=2", ["--cluster", "cpu:2", "--mesh", "dp=2"]),
                                 ("ep=2", ["--cluster", "cpu:2", "--mesh", "ep=2"]))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("what", choices=["uneven", "chunks", "experts"])
    options = parser.parse_args()
    tool = options.build / "bin/cleave"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        plans, times, memory = {}, {}, {}
        for name, (model, recipe, flags) in {"uneven": uneven, "chunks": chunks, "experts": experts}[options.what](folder).items():
            plans[name] = folder / f"{len(plans)}.plan"
            call(tool, "compile", model, "--recipe", recipe, *flags, "--no-proof", "-o", plans[name])
            memory[name] = json.loads(subprocess.run([str(tool), "report", "--format", "json", plans[name]], capture_output=True, text=True,
                                                     check=True).stdout)["predicted"]["memory_bytes_per_device"]
        for _ in range(ROUNDS):
            for name, plan in plans.items():
                metrics = folder / "m.jsonl"
                call(tool, "run", plan, "--steps", STEPS, "--metrics", metrics, "--quiet")
                lines = [json.loads(line) for line in metrics.read_text().splitlines()]
                times.setdefault(name, []).extend(line["step_time_s"] for line in lines[WARMUP:])
                metrics.unlink()
            if options.what == "experts":
                lines = subprocess.run([sys.executable, str(HERE / "experts.py"), "train", str(STEPS)], capture_output=True, text=True,
                                       check=True, timeout=900).stdout.split()
                times.setdefault("PyTorch, a loop over the experts", []).extend(float(line) for line in lines[WARMUP:])
        for name in times:
            planned = f"{memory[name] / 2**20:8.0f} MiB planned" if name in memory else ""
            print(f"  {name:52s} {1000 * statistics.median(times[name]):9.1f} ms   {planned}")


main()
