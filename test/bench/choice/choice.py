#!/usr/bin/env python3
"""Is the searched split the fastest one here? It, and every preset that fits, beside PyTorch's DDP, FSDP2 and pipeline over gloo.

    ./dev bench choice [--write docs/results/choice.md]
    choice.py --build BUILD [--models a,b] [--devices 2,4] [--minutes 18] [--steps 3] [--write PAGE]

All splits of a model are compiled, then run by turns: in each round every plan runs for a few steps, forwards in one round and
backwards in the next. The first two steps of a run do not count. The first round is short, and a split that took a tenth
more than the fastest is not run again. A figure is the least of all steps: what else the machine does only adds to it.
PyTorch runs between the first round and the second. It has a process a rank, Cleave a thread a device, and both as many
threads. A run that fails, or that is not done in time, is a row with its reason.

PyTorch is the pinned one of ./dev (CLEAVE_DEPS), or that of the Python which CLEAVE_TORCH_PYTHON names; it exports the models, too.
"""
import argparse
import datetime
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- choices -->", "<!-- end of choices -->"
MODELS = ("mingpt", "bert", "resnet50", "classifier", "unet", "lstm")
TORCH = {"ddp": "PyTorch DDP", "fsdp2": "PyTorch FSDP2", "pipeline": "PyTorch pipeline, 1f1b"}
WARMUP, DROPPED, MOST_ROUNDS, MOST_STEPS = 2, 1.1, 6, 40
QUICK_SECONDS = 0.5  # of steps that count in the first round; one, if it takes longer
RUN_SECONDS, COMPILE_SECONDS = 120, 180  # that one run, and one command of the compiler, may take
WITHIN = 0.03  # of the fastest: as good as it


class Failure(Exception):
    """Why a command did not do what it was to do, in a line."""


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
    return told[-1].removeprefix("cleave: error: ")[:200]


def finish(processes, seconds):
    """Their standard outputs. All are ended when one fails, or when the time is over."""
    until = time.monotonic() + seconds
    try:
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                time.sleep(1)  # the others say why, too
                break
            if time.monotonic() > until:
                raise Failure(f"not done after {seconds} s")
            time.sleep(0.02)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for process in processes:
        process.files[0].seek(0), process.files[1].seek(0)
    texts = [[file.read() for file in process.files] for process in processes]
    for process, (_, errors) in zip(processes, texts):
        if process.returncode > 0:
            raise Failure(last_line(errors))
    for process in processes:
        if process.returncode:
            raise Failure(f"ended by signal {-process.returncode}")
    return [output for output, _ in texts]


def start(command, environment=None):
    files = [tempfile.TemporaryFile("w+") for _ in range(2)]
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1],
                               env=environment, start_new_session=True)
    process.files = files
    return process


def call(command, seconds, environment=None):
    return finish([start(command, environment)], seconds)[0]


def find_torch():
    """(Python, environment) that import torch."""
    dependencies = pathlib.Path(os.environ.get("CLEAVE_DEPS", pathlib.Path.home() / ".cache/cleave/dependencies"))
    pinned = {**os.environ, "PYTHONPATH": str(dependencies / "torch/site"), "HF_HUB_OFFLINE": "1"}
    for python, environment in ((os.environ.get("CLEAVE_TORCH_PYTHON"), {**os.environ, "HF_HUB_OFFLINE": "1"}), ("/usr/bin/python3", pinned)):
        if python and subprocess.run([python, "-c", "import torch"], env=environment, capture_output=True).returncode == 0:
            return python, environment
    sys.exit("PyTorch, which exports the models, cannot be imported: ./dev deps installs it, or set CLEAVE_TORCH_PYTHON")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def milliseconds(seconds):
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.1f}"


class Row:
    def __init__(self, name):
        self.name, self.split, self.plan, self.predicted, self.times, self.why = name, "", None, None, [], ""

    @property
    def time(self):
        return min(self.times, default=None)


def split_of(report):
    """"dp=2, zero 1, 4 microbatches"."""
    parts = [f"{axis}={size}" for axis, size in report["mesh"].items() if size > 1]
    if report["zero"]:
        parts.append(f"zero {report['zero']}")
    if report["microbatches"] > 1:
        parts.append(f"{report['microbatches']} microbatches")
    parts += [report[key] for key in ("schedule", "recompute") if report[key] not in ("", "none") and ("pp" in report["mesh"] or key != "schedule")]
    return ", ".join(parts)


class Comparison:
    """One model on cpu:N."""

    def __init__(self, options, torch, folder, model, devices):
        self.cleave, self.torch, self.folder, self.model, self.devices = options.build.resolve() / "bin/cleave", torch, folder, model, devices
        self.steps, self.threads = options.steps, max(1, len(os.sched_getaffinity(0)) // devices)
        self.given = [folder / "model.onnx", "--recipe", folder / "recipe.yaml", "--cluster", f"cpu:{devices}"]
        self.rows, self.others, self.impossible = [], [], []

    def compile(self, row, flags):
        plan = self.folder / f"{row.name}-{self.devices}.plan"
        try:
            call([self.cleave, "compile", *self.given, *flags, "--no-proof", "-o", plan], COMPILE_SECONDS)
            report = json.loads(call([self.cleave, "report", plan, "--format", "json"], COMPILE_SECONDS))
        except Failure as why:
            row.why = f"not compiled: {why}".replace(f"{self.folder}/", "")
            return
        row.predicted, row.split = report["predicted"]["step_time_s"], split_of(report)
        same = next((other for other in self.rows if other.plan and (other.split, other.predicted) == (row.split, row.predicted)), None)
        if same:
            row.why = f"the plan of {same.name}"
            plan.unlink()
            return
        row.plan = plan

    def compile_all(self):
        searched = Row("searched")
        self.compile(searched, [])
        self.rows.append(searched)
        for preset in json.loads(call([self.cleave, "estimate", *self.given, "--json"], COMPILE_SECONDS))["alternatives"]:
            if preset["name"].startswith("searched"):
                continue
            if not preset["fits"]:
                self.impossible.append(preset["name"])
                continue
            row = Row(preset["name"])
            self.compile(row, ["--like", row.name])
            self.rows.append(row)

    def run(self, row, steps):
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        try:
            call([self.cleave, "run", row.plan, "--steps", WARMUP + steps, "--threads", self.threads, "--metrics", metrics, "--quiet"],
                 RUN_SECONDS)
        except Failure as why:
            row.why, row.plan, row.times = f"did not run: {why}", None, []
            return
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        row.times += [line["step_time_s"] for line in lines if "loss" in line][WARMUP:]

    def run_torch(self, kind):
        row, (python, environment) = Row(TORCH[kind]), self.torch
        here = {**environment, "WORLD_SIZE": str(self.devices), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                "OMP_NUM_THREADS": str(self.threads)}
        command = [python, HERE / "torch_rank.py", self.model, kind, WARMUP + self.steps, self.threads]
        try:
            outputs = finish([start(command, {**here, "RANK": str(rank)}) for rank in range(self.devices)], RUN_SECONDS)
            row.times = json.loads(outputs[0].splitlines()[-1])[WARMUP:]
        except Failure as why:
            row.why = f"did not run: {why}"
        self.others.append(row)

    def measure(self, until):
        """Rounds until that time; at least two."""
        running = [row for row in self.rows if row.plan]
        for row in running:
            self.run(row, max(1, min(10, int(QUICK_SECONDS / row.predicted))))
        for kind in TORCH:
            self.run_torch(kind)
        fastest = min((row.time for row in running if row.times), default=0)
        if fastest and fastest < 0.2:
            self.steps = min(MOST_STEPS, int(self.steps * 0.2 / fastest) + 1)  # short steps: more of them
        running = [row for row in running if row.times and (row.name == "searched" or row.time <= DROPPED * fastest)]
        for number in range(1, MOST_ROUNDS):
            begin = time.monotonic()
            for row in running if number % 2 == 0 else running[::-1]:
                if row.plan:
                    self.run(row, self.steps)
            now = time.monotonic()
            if now + (now - begin) > until:
                break

    def regret(self):
        """What the searched split takes over the fastest one; None: it did not run."""
        times = [row.time for row in self.rows if row.times]
        return self.rows[0].time / min(times) - 1 if self.rows[0].times else None


def table(title, comparison):
    rows = [f"**{title}, cpu:{comparison.devices}**", "", "| split | | predicted, ms | measured, ms | median | over the searched |", "|---" * 6 + "|"]
    searched = comparison.rows[0].time
    measured = sorted((row for row in comparison.rows + comparison.others if row.times), key=lambda row: row.time)
    for row in measured:
        over = f"{row.time / searched:.2f}" if searched else ""
        rows.append(f"| {row.name} | {row.split} | {milliseconds(row.predicted) if row.predicted else ''} | {milliseconds(row.time)} | "
                    f"{milliseconds(statistics.median(row.times))} | {over} |")
    for row in comparison.rows + comparison.others:
        if not row.times:
            rows.append(f"| {row.name} | {row.split} | {milliseconds(row.predicted) if row.predicted else ''} | {row.why} | | |")
    if comparison.impossible:
        rows += ["", f"Not possible here: {', '.join(comparison.impossible)}."]
    return rows + [""]


def summary_row(title, comparison):
    searched, regret = comparison.rows[0], comparison.regret()
    torch = min((row for row in comparison.others if row.times), key=lambda row: row.time, default=None)
    beside = f"{milliseconds(torch.time)}, {torch.name.removeprefix('PyTorch ')}" if torch else "none ran"
    if regret is None:
        return f"| {title} | {comparison.devices} | {searched.split} | | {searched.why} | | | {beside} |"
    fastest = min((row for row in comparison.rows if row.times), key=lambda row: row.time)
    return (f"| {title} | {comparison.devices} | {searched.split} | {milliseconds(searched.predicted)} | {milliseconds(searched.time)} | "
            f"{milliseconds(fastest.time)}, {fastest.name} | {100 * regret:.1f} % | {beside} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS), help="of these")
    parser.add_argument("--devices", default="2,4")
    parser.add_argument("--minutes", type=float, default=18, help="that all should take")
    parser.add_argument("--steps", type=int, default=3, help="that count, of a run after the first round")
    parser.add_argument("--write", type=pathlib.Path, help="the page whose tables are replaced")
    options = parser.parse_args()
    begin, torch = time.monotonic(), find_torch()
    rows, tables, regrets, ahead = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="cleave-choice-") as scratch:
        cases = [(model, devices) for model in options.models.split(",") for devices in map(int, options.devices.split(","))]
        for number, (model, devices) in enumerate(cases):
            folder, until = pathlib.Path(scratch) / model, begin + 60 * options.minutes * (number + 1) / len(cases)
            comparison, title, began = Comparison(options, torch, folder, model, devices), model, time.monotonic()
            try:
                if not folder.exists():
                    call([torch[0], HERE / "models.py", "export", model, folder], COMPILE_SECONDS, torch[1])
                title = (folder / "title").read_text()
                comparison.compile_all()
                compiled = time.monotonic()
                comparison.measure(until)
            except Failure as why:
                rows.append(f"| {title} | {devices} | {why} | | | | | |".replace(f"{scratch}/", ""))
                print(rows[-1], flush=True)
                continue
            finally:
                for plan in folder.glob("*.plan"):
                    plan.unlink()
            rows.append(summary_row(title, comparison))
            lines = table(title, comparison)
            tables += lines
            print("\n".join(lines + [rows[-1], f"{compiled - began:.0f} s to compile, {time.monotonic() - compiled:.0f} s to run; "
                            f"{(time.monotonic() - begin) / 60:.1f} minutes so far", ""]), flush=True)
            if comparison.regret() is not None:
                regrets.append(comparison.regret())
                theirs = [row.time for row in comparison.others if row.times]
                if theirs:
                    ahead.append(min(theirs) / comparison.rows[0].time)
    good = sum(regret <= WITHIN for regret in regrets)
    last = (f"The searched split is the fastest one or within {100 * WITHIN:.0f} % of it in {good} of {len(regrets)} rows; its mean regret is "
            f"{100 * statistics.mean(regrets):.1f} %, the largest {100 * max(regrets):.1f} %.") if regrets else "Nothing ran."
    if ahead:
        last += f" The fastest of PyTorch's takes {statistics.geometric_mean(ahead):.2f} times as long in the geometric mean, {min(ahead):.2f} to {max(ahead):.2f}."
    page = [f"{len(os.sched_getaffinity(0))} cores of {cpu_name()}, {datetime.date.today().isoformat()}, fp32, {(time.monotonic() - begin) / 60:.0f} minutes.", "", last, "",
            "| model | devices | the searched split | predicted, ms | measured, ms | the fastest, ms | regret | the fastest of PyTorch's, ms |", "|---" * 8 + "|", *rows,
            "", *tables]
    print("\n".join(page[:2 + 2 + len(rows) + 3]))
    if options.write:
        text = options.write.read_text()
        head, _, rest = text.partition(BEGIN)
        options.write.write_text(head + BEGIN + "\n" + "\n".join(page).rstrip() + "\n" + END + rest.partition(END)[2])


def cpu_name():
    names = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else "a CPU"


if __name__ == "__main__":
    main()
