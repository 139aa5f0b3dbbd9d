#!/usr/bin/env python3
"""Is the order of splits that the planner predicts for this machine's CPU the one that is measured?

    ./dev bench split-order
    split_order.py --build BUILD [--models a,b] [--devices 1,2,4] [--keep FOLDER] [--clusters FOLDER] [--realtime]

`cleave probe` measures the machine for cpu:1, cpu:2 and cpu:4; then small models are compiled with several splits each
and run. A split's time is that of its quick steps (the twentieth part that is the quickest takes no longer; the very
shortest of thousands of steps of 50 us is a fluke), in the quickest of several runs; the runs are short and take turns, so
that another process' load hits all of them alike. Two splits whose times differ by less than 10 % are a tie. Any other
pair is out of order when the prediction has it the other way round.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATA = ROOT / "test/golden/data"
MODELS = ["mlp", "mingpt_nano", "gpt2_tiny", "bert_tiny", "llama_tiny", "fairscale_classifier"]
BATCH, ROUNDS, ROUND_SECONDS, TIE = 32, 6, 0.25, 0.10
SPLITS = {
    1: {
        "plain": [],
        "4 microbatches": ["--microbatches", "4"],
        "recompute": ["--recompute", "full"],
        "4 microbatches, recompute": ["--microbatches", "4", "--recompute", "full"],
    },
    2: {
        "ddp": ["--like", "ddp"],
        "zero1": ["--like", "zero1"],
        "zero3": ["--like", "zero3"],
        "megatron": ["--like", "megatron"],
        "ddp, 4 microbatches": ["--like", "ddp", "--microbatches", "4"],
        "ddp, recompute": ["--like", "ddp", "--recompute", "full"],
    },
    4: {
        "ddp": ["--like", "ddp"],
        "zero1": ["--like", "zero1"],
        "zero3": ["--like", "zero3"],
        "megatron": ["--like", "megatron"],
        "dp=2,tp=2": ["--mesh", "dp=2,tp=2", "--zero", "0"],
        "zero2, 2 microbatches": ["--like", "zero2", "--microbatches", "2"],
    },
}


def call(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-600:].strip()}")
    return done.stdout


def write_recipe(model, folder):
    """The golden model's training with invented samples, and steps too small to change anything."""
    train = json.loads((DATA / model / "train.json").read_text())
    text = {
        "dims": {**train["dims"], "batch": BATCH},
        "loss": {**train["loss"], "labels": {"name": train["label"]["name"]}},
        "optimizer": {**train["optimizer"], "lr": 1e-6},
        "data": {"kind": "synthetic"},
        "init": {"kind": "normal", "std": 0.02},
    }
    for key in ("clip_norm", "trainable", "batch_norm"):
        if train.get(key) is not None:
            text[key] = train[key]
    path = folder / f"{model}.yaml"
    path.write_text(json.dumps(text, indent=1))  # JSON is YAML
    return path


def time_of(cleave, plan, folder, steps, realtime):
    """Seconds of a quick step of so many."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    prefix = ["chrt", "-f", "1"] if realtime else []
    call(prefix + [cleave, "run", plan, "--steps", steps, "--metrics", metrics, "--quiet"])
    times = sorted(json.loads(line)["step_time_s"] for line in metrics.read_text().splitlines() if '"loss"' in line)
    return times[len(times) // 20]


def measure(cleave, plans, folder, realtime):
    """Step time of every plan, in seconds."""
    best, steps = {}, {}
    for name, plan in plans.items():  # also warms up
        best[name] = time_of(cleave, plan, folder, 5, realtime)
        steps[name] = max(5, min(8000, int(ROUND_SECONDS / best[name])))
    for _ in range(ROUNDS):
        for name, plan in plans.items():
            best[name] = min(best[name], time_of(cleave, plan, folder, steps[name], realtime))
    return best


def out_of_order(predicted, measured):
    wrong = []
    for a, b in itertools.combinations(predicted, 2):
        if measured[a] > measured[b]:
            a, b = b, a
        if measured[b] > measured[a] * (1 + TIE) and predicted[a] > predicted[b]:
            wrong.append((a, b))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--devices", default=",".join(map(str, SPLITS)))
    parser.add_argument("--clusters", type=pathlib.Path, help="folder of cpu-N.yaml files instead of probing")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for plans and times; what is there is not made again")
    parser.add_argument("--realtime", action="store_true", help="run before all other processes (chrt -f 1, needs root)")
    args = parser.parse_args()
    cleave = args.build.resolve() / "bin/cleave"
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="split-order-"))
    folder.mkdir(parents=True, exist_ok=True)
    start, pairs, wrong_pairs, failed = time.monotonic(), 0, 0, 0
    for devices in map(int, args.devices.split(",")):
        cluster = (args.clusters or folder) / f"cpu-{devices}.yaml"
        if not args.clusters:
            call((["chrt", "-f", "1"] if args.realtime else []) + [cleave, "probe", "--devices", devices, "-o", cluster])
        for model in args.models.split(","):
            recipe, predicted, plans = write_recipe(model, folder), {}, {}
            for name, flags in SPLITS[devices].items():
                plan = folder / f"{model}-{devices}-{name.replace(' ', '_').replace(',', '')}.plan"
                common = [DATA / model / "model.onnx", "--recipe", recipe, "--cluster", cluster, *flags]
                try:
                    if args.keep and plan.exists():
                        report = json.loads(call([cleave, "estimate", *common, "--json"]))
                    else:
                        report = json.loads(call([cleave, "compile", *common, "-o", plan, "--json"]))
                except RuntimeError as error:
                    failed += 1
                    print(f"  {model}, cpu:{devices}, {name}: {error}")
                    continue
                predicted[name], plans[name] = report["predicted"], plan
            times_file = folder / f"{model}-{devices}.times.json"
            if args.keep and times_file.exists():
                measured = json.loads(times_file.read_text())
            else:
                measured = measure(cleave, plans, folder, args.realtime)
                times_file.write_text(json.dumps(measured))
            seconds = {name: entry["step_time_s"] for name, entry in predicted.items()}
            wrong = out_of_order(seconds, measured)
            pairs += len(seconds) * (len(seconds) - 1) // 2
            wrong_pairs += len(wrong)
            print(f"{model}, cpu:{devices}: {len(wrong)} pairs out of order")
            print(f"  {'split':28s} predicted  measured  ratio     compute  communication")
            for name in sorted(seconds, key=seconds.get):
                entry = predicted[name]
                print(f"  {name:28s} {1e3 * seconds[name]:6.3f} ms {1e3 * measured[name]:6.3f} ms  {seconds[name] / measured[name]:5.2f}"
                      f"   {1e3 * entry['compute_s']:6.3f} ms      {1e3 * entry['exposed_communication_s']:6.3f} ms")
            for a, b in wrong:
                print(f"  out of order: '{a}' is faster than '{b}' by {100 * (1 - measured[a] / measured[b]):.0f} %")
            sys.stdout.flush()
    print(f"{wrong_pairs} of {pairs} pairs out of order, {failed} splits failed; {time.monotonic() - start:.0f} s")
    return 1 if wrong_pairs or failed else 0


if __name__ == "__main__":
    sys.exit(main())
