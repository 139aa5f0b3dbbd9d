#!/usr/bin/env python3
"""Is the order of splits that the planner predicts for this machine's CPU the one that is measured?

    ./dev bench split-order
    split_order.py --build BUILD [--models a,b] [--devices 1,2,4] [--keep FOLDER] [--clusters FOLDER] [--realtime]

`cleave probe` measures the machine for cpu:1, cpu:2 and cpu:4; then small models are compiled with several splits each
and run. In every round each split runs for a moment, one after the other, and a split's time in it is that of its quick
steps (the twentieth part that is the quickest takes no longer; the very shortest of thousands of steps of 50 us is a
fluke). Two splits are compared by the median of the rounds' ratios: what slows a round down slows all of it. Splits
whose times differ by less than 10 % are a tie. Any other pair is out of order when the prediction has it the other way
round.

A virtual machine's cores change their speed by a third, and for minutes halve it, with what else its host does. So one
reference plan is timed right after the probe and between rounds: a round counts where the machine is as fast as it was
when it was probed, within 10 %. Where it stays otherwise, it is probed again, once for a model; after that rounds count
as they are, and are said to be disturbed.
"""
import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATA = ROOT / "test/golden/data"
MODELS = ["mlp", "mingpt_nano", "gpt2_tiny", "bert_tiny", "llama_tiny", "fairscale_classifier"]
BATCH, ROUNDS, ROUND_SECONDS, TIE = 32, 7, 0.25, 0.10
REFERENCE, STEADY, PROBES = "mingpt_nano", 0.10, 2  # the plan that tells the machine's speed; probes for one model
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
        "megatron": ["--like", "megatron-2021"],
        "ddp, 4 microbatches": ["--like", "ddp", "--microbatches", "4"],
        "ddp, recompute": ["--like", "ddp", "--recompute", "full"],
    },
    4: {
        "ddp": ["--like", "ddp"],
        "zero1": ["--like", "zero1"],
        "zero3": ["--like", "zero3"],
        "megatron": ["--like", "megatron-2021"],
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


class Machine:
    """Times plans, and knows whether the machine is as fast as when it was probed."""

    def __init__(self, cleave, folder, devices, realtime):
        self.cleave, self.folder, self.devices, self.realtime = cleave, folder, devices, realtime
        self.plan, self.reference = folder / f"reference-{devices}.plan", None
        recipe = write_recipe(REFERENCE, folder)
        flags = next(iter(SPLITS[devices].values()))
        model = DATA / REFERENCE / "model.onnx"
        call([cleave, "compile", model, "--recipe", recipe, "--cluster", f"cpu:{devices}", *flags, "-o", self.plan])
        self.steps = self.steps_of(self.plan)

    def run(self, plan, steps):
        return time_of(self.cleave, plan, self.folder, steps, self.realtime)

    def steps_of(self, plan):
        """As many steps as a round has time for; also warms up."""
        return max(5, min(8000, int(ROUND_SECONDS / self.run(plan, 5))))

    def speed_is_kept(self):
        """Whether the reference plan takes what it took after the probe."""
        return abs(self.run(self.plan, self.steps) / self.reference - 1) <= STEADY

    def probe(self, cluster):
        """Measures the machine into the file `cluster`; `None` takes it as it is."""
        if cluster:
            call((["chrt", "-f", "1"] if self.realtime else []) + [self.cleave, "probe", "--devices", self.devices, "-o", cluster])
        self.reference = statistics.median(self.run(self.plan, self.steps) for _ in range(3))

    def measure(self, plans, patience):
        """Each plan's step time in every round, in seconds, and how many rounds were at another speed than was probed.
        Those do not count, and more of them than `patience` give no times; where that is `None` they count."""
        steps = {name: self.steps_of(plan) for name, plan in plans.items()}
        rounds, disturbed, kept = [], 0, self.speed_is_kept()
        while len(rounds) < ROUNDS:
            times = {name: self.run(plan, steps[name]) for name, plan in plans.items()}
            before, kept = kept, self.speed_is_kept()
            if before and kept or patience is None:
                rounds.append(times)
            disturbed += not (before and kept)
            if patience is not None and disturbed > patience:
                return None, disturbed
        return {name: [times[name] for times in rounds] for name in plans}, disturbed


def ratio(a, b):
    """How much longer `a` takes than `b`, both in the same rounds."""
    return statistics.median(x / y for x, y in zip(a, b))


def out_of_order(predicted, measured):
    wrong = []
    for a, b in itertools.combinations(predicted, 2):
        if ratio(measured[a], measured[b]) > 1:
            a, b = b, a
        if ratio(measured[b], measured[a]) > 1 + TIE and predicted[a] > predicted[b]:
            wrong.append((a, b))
    return wrong


def predict(cleave, model, devices, cluster, folder, keep):
    """What is predicted for every split of the model, the compiled plans, and how many splits failed."""
    recipe, predicted, plans, failed = write_recipe(model, folder), {}, {}, 0
    for name, flags in SPLITS[devices].items():
        plan = folder / f"{model}-{devices}-{name.replace(' ', '_').replace(',', '')}.plan"
        common = [DATA / model / "model.onnx", "--recipe", recipe, "--cluster", cluster, *flags]
        try:
            if keep and plan.exists():
                report = json.loads(call([cleave, "estimate", *common, "--json"]))
            else:
                report = json.loads(call([cleave, "compile", *common, "-o", plan, "--json"]))
        except RuntimeError as error:
            failed += 1
            print(f"  {model}, cpu:{devices}, {name}: {error}")
            continue
        predicted[name], plans[name] = report["predicted"], plan
    return predicted, plans, failed


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
    start, pairs, wrong_pairs, failures, notes = time.monotonic(), 0, 0, 0, []
    for devices in map(int, args.devices.split(",")):
        machine = Machine(cleave, folder, devices, args.realtime)
        cluster = (args.clusters or folder) / f"cpu-{devices}.yaml"
        machine.probe(None if args.clusters else cluster)
        for model in args.models.split(","):
            times_file, disturbed = folder / f"{model}-{devices}.times.json", ""
            for attempt in range(1, PROBES + 1):
                predicted, plans, failed = predict(cleave, model, devices, cluster, folder, args.keep and attempt == 1)
                if args.keep and times_file.exists():
                    measured = json.loads(times_file.read_text())
                    break
                last = attempt == PROBES or args.clusters
                measured, others = machine.measure(plans, None if last else ROUNDS)
                if measured:
                    disturbed = ", in disturbed rounds" if last and others else ""
                    times_file.write_text(json.dumps(measured))
                    break
                print(f"the machine is not as fast as it was when it was probed: cpu:{devices} is probed again")
                machine.probe(cluster)
            seconds = {name: entry["step_time_s"] for name, entry in predicted.items()}
            wrong = out_of_order(seconds, measured)
            pairs += len(seconds) * (len(seconds) - 1) // 2
            wrong_pairs += len(wrong)
            failures += failed
            if disturbed and wrong:
                notes.append(f"{model} on cpu:{devices}")
            print(f"{model}, cpu:{devices}: {len(wrong)} pairs out of order{disturbed}")
            print(f"  {'split':28s} predicted  measured  ratio     compute  communication")
            for name in sorted(seconds, key=seconds.get):
                entry, taken = predicted[name], statistics.median(measured[name])
                print(f"  {name:28s} {1e3 * seconds[name]:6.3f} ms {1e3 * taken:6.3f} ms  {seconds[name] / taken:5.2f}"
                      f"   {1e3 * entry['compute_s']:6.3f} ms      {1e3 * entry['exposed_communication_s']:6.3f} ms")
            for a, b in wrong:
                print(f"  out of order: '{a}' is faster than '{b}' by {100 * (1 - ratio(measured[a], measured[b])):.0f} %")
            sys.stdout.flush()
    print(f"{wrong_pairs} of {pairs} pairs out of order, {failures} splits failed; {time.monotonic() - start:.0f} s")
    if notes:
        print(f"  of those, measured in disturbed rounds: {', '.join(notes)}")
    return 1 if wrong_pairs or failures else 0


if __name__ == "__main__":
    sys.exit(main())
