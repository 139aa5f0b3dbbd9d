#!/usr/bin/env python3
"""GPT-2 124M and ResNet-50 as plans for an H100: what a step starts and moves. No GPU is needed.

    ./dev bench gpu-steps                                      prints the table, writes docs/results/gpu-steps.md
    gpu_steps.py --build BUILD [--write FILE] [--only gpt2]

Models and recipes are those of `./dev bench --gpu`. Kernels and library calls are counted in the plan, as they are launched
or captured; bytes are those of their operands, each once (`cleave report`: commands of a step). Each model is also compiled
with settings that leave out what compiling for GPUs does, so that the rows differ by one thing.
"""
import argparse
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("gpu_bench", str(ROOT / "test/gpu/bench"))
gpu_bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_bench", LOADER))
LOADER.exec_module(gpu_bench)

CLUSTER = "h100-80g:1"
# By model: what is left out, and the flags for it.
VARIANTS = {"gpt2": [("as it is", []), ("`attention=written`", ["--set", "attention=written"]),
                     ("`epilogues=written`", ["--set", "epilogues=written"]),
                     ("both", ["--set", "attention=written", "--set", "epilogues=written"]),
                     ("sums in any order (`deterministic=true`)", ["--set", "deterministic=true"])],
            "resnet50": [("as it is", [])]}
LIBRARY = ("contract", "convolution", "attention")
BEGIN, END = "<!-- gpu steps -->", "<!-- end of gpu steps -->"


def report_of(build, folder, model, batch, generator, settings, flags):
    gpu_bench.call([sys.executable, ROOT / generator[0], *generator[1:], "-o", folder / "model.onnx"])
    (folder / "recipe.yaml").write_text(json.dumps(gpu_bench.recipe_of(batch, settings)))
    gpu_bench.call([build / "bin/cleave", "compile", folder / "model.onnx", "--recipe", folder / "recipe.yaml", "--cluster", CLUSTER,
                    "--like", "ddp", *flags, "-o", folder / "x.plan"])
    return json.loads(gpu_bench.call([build / "bin/cleave", "report", folder / "x.plan", "--format", "json"]))


def row_of(title, variant, report):
    def total(key, wanted):
        return sum(row[key] for row in report["commands"] if wanted(row["kind"]))

    def is_library(kind):
        return kind in LIBRARY

    memory = report["predicted"]["memory_breakdown"]
    cells = [title, variant, f"{total('launches', lambda kind: not is_library(kind)):.0f}", f"{total('launches', is_library):.0f}",
             f"{total('bytes', lambda kind: not is_library(kind)) / 1e9:.2f}", f"{total('bytes', is_library) / 1e9:.2f}",
             f"{memory['activations'] / 2**30:.2f}", f"{memory['workspace'] / 2**20:.0f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--write", type=pathlib.Path, help="page whose table this is")
    parser.add_argument("--only", choices=VARIANTS, help="this model")
    args = parser.parse_args()
    lines = ["| model | left out | kernels | library calls | kernels, GB | library calls, GB | activations, GiB | workspace, MiB |",
             "|---|---|---|---|---|---|---|---|"]
    for title, (model, batch, generator, settings) in gpu_bench.CASES.items():
        for variant, flags in VARIANTS[model] if args.only in (None, model) else []:
            with tempfile.TemporaryDirectory(prefix="cleave-gpu-steps-") as scratch:
                report = report_of(args.build.resolve(), pathlib.Path(scratch), model, batch, generator, settings, flags)
            lines.append(row_of(title, variant, report))
            print(lines[-1], flush=True)
    if args.write:
        page = args.write.read_text()
        begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        args.write.write_text(page[:begin] + "\n" + "\n".join(lines) + "\n" + page[end:])


if __name__ == "__main__":
    main()
