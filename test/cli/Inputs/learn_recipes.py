"""Trains the recipes of models/ on the data of recipe_data.py, on one device, on two, and cut in the middle.

    learn_recipes.py MODELS FOLDER
"""
import json
import pathlib
import shutil
import subprocess
import sys

models, folder = map(pathlib.Path, sys.argv[1:])


def run(*words):
    done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")


def trained(name, model, recipe, steps, every, split, cut=None):
    """The losses of all steps and the metrics of the last evaluation. cut: a step after which another split goes on."""
    rest = ["--set", f"eval.every={every}", "-o", f"{name}.plan"]
    shutil.rmtree(folder / "snapshots", ignore_errors=True)
    for number, (until, flags) in enumerate([(cut, split[0]), (steps, split[1])] if cut else [(steps, split)]):
        run("cleave", "compile", model, "--recipe", recipe, *flags, *rest)
        run("cleave", "run", f"{name}.plan", "--steps", until, "--quiet", "--metrics", f"{name}.jsonl", "--snapshot", "snapshots",
            *(["--resume"] if number else []))
    lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines], {key: value for key, value in lines[-1].items() if key.startswith("eval_")}


def check(name, model, recipe, steps, every, has_learnt, sets=()):
    sets = [word for one in sets for word in ("--set", one)]
    one, two = ["--cluster", "cpu:1", *sets], ["--cluster", "cpu:2", "--mesh", "dp=2", "--zero", "3", *sets]
    three = ["--cluster", "cpu:2", "--mesh", "tp=2", *sets]
    losses, found = trained(name, model, recipe, steps, every, one)
    if not has_learnt(found):
        sys.exit(f"{name}: has not learnt: {found}")
    for split, cut in (two, None), ((three, two), every):
        others, _ = trained(name, model, recipe, steps, every, split, cut)
        near = 5  # rounding grows from step to step
        if len(others) != steps or max(abs(a - b) / b for a, b in zip(others[:near], losses[:near])) > 1e-3:
            sys.exit(f"{name}: {split} has other losses: {others[:near]}, one device {losses[:near]}")
    print(f"{name}: learnt")


subprocess.run([sys.executable, models / "gpt/make_gpt.py", "--layers", "4", "--hidden", "64", "--heads", "4", "--vocab", "64", "--seq",
                "64", "-o", folder / "gpt.onnx"], check=True, stdout=subprocess.DEVNULL)
shutil.copy(models / "gpt/mixture.yaml", folder)
check("resnet", models / "resnet_cifar/resnet8.onnx", models / "resnet_cifar/augmented.yaml", 120, 60, lambda of: of["eval_accuracy"] > 0.8,
      [f"data.path={folder}", "optimizer.lr.total_steps=120"])
check("gpt", "gpt.onnx", "mixture.yaml", 60, 30, lambda of: of["eval_perplexity"] < 20)
check("distillation", models / "distillation/pair.onnx", models / "distillation/distill.yaml", 200, 100,
      lambda of: of["eval_accuracy"] > 0.5 and of["eval_loss.distill"] < 1, [f"data.path={folder}/pair.npz"])
