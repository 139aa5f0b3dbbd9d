#!/usr/bin/env python3
"""Runs that are disturbed on purpose: what ends how, whether the cause is named, and after how many seconds.

    faults.py --build BUILD [--write FILE] [PART...]

Each part is a function that gives its rows; --write puts its table between its marks in FILE. A run that has not ended
two minutes after its fault hangs.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "test/cli/Inputs"))
from free_port import free_port  # noqa: E402
from kept_state import full_disks, going_on, kills, lines, losses  # noqa: E402
from shared_state import crossed_runs, planted_mirrors, stale_listings  # noqa: E402
from strangers import run_among  # noqa: E402

MLP = ROOT / "test/golden/data/mlp/model.onnx"
RANKS, VICTIM, TIMEOUT, HANGS = 4, 2, 5, 120
RECIPE = ("dims: {batch: 8}\nloss: {kind: softmax_cross_entropy}\n"
          "optimizer: {kind: sgd, lr: 0.01, momentum: 0.9}\ndata: {kind: synthetic}\n")
COLUMNS = ["fault", "over", "runs", "ended as they should", "hung", "cause named", "seconds until named: median", "most"]


class Bench:
    def __init__(self, build, folder):
        self.cleave, self.folder = build / "bin/cleave", folder
        (folder / "recipe.yaml").write_text(RECIPE)
        self.plans = {}

    def plan(self, split="zero3"):
        if split not in self.plans:
            path = self.folder / f"{split}.plan"
            subprocess.run([self.cleave, "compile", MLP, "--recipe", self.folder / "recipe.yaml", "--cluster", f"cpu:{RANKS}",
                            "--like", split, "-o", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.plans[split] = path
        return self.plans[split]

    def command(self, metrics, *options):
        return [self.cleave, "run", self.plan(), "--threads", "1", "--quiet", "--metrics", metrics, *options]


def seconds_of(numbers):
    numbers = sorted(numbers)
    return [f"{numbers[len(numbers) // 2]:.1f}", f"{numbers[-1]:.1f}"] if numbers else ["", ""]


def strangers(bench):
    """100 connections of ten kinds each, half of them before the ranks have met."""
    steps, runs = 200, 3
    alone = bench.folder / "alone.jsonl"
    subprocess.run(bench.command(alone, "--steps", str(steps)), check=True)
    good, came = 0, 0
    for run in range(runs):
        folder = bench.folder / f"among-{run}"
        folder.mkdir()
        statuses, _, first, second = run_among(folder, RANKS, bench.command(folder / "metrics.jsonl", "--steps", str(steps)),
                                               free_port())
        came += first.came + second.came + second.refused
        good += not any(statuses) and losses(folder / "metrics.jsonl") == losses(alone)
        print(f"strangers, run {run + 1}: {statuses}", flush=True)
    yield [f"{came} strangers, {came // runs} a run: same losses", "TCP", runs, good, 0, "", "", ""]


class Ranks:
    """A run without an end over TCP or MPI; rank r's process has the id pids[r]."""

    def __init__(self, bench, transport, name):
        self.metrics = bench.folder / f"{name}.jsonl"
        self.metrics.unlink(missing_ok=True)
        command = bench.command(self.metrics, "--steps", "100000000", "--step-timeout", str(TIMEOUT))
        self.says = [bench.folder / f"{name}.{rank}.txt" for rank in range(RANKS)]
        variables = dict(os.environ)
        if transport == "MPI":
            launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS), *command]
            self.started = [self.start(launch, variables, self.says[0])]
        else:
            variables |= {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            self.started = [self.start(command, variables | {"RANK": str(rank)}, self.says[rank]) for rank in range(RANKS)]
        deadline = time.monotonic() + HANGS
        while lines(self.metrics) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        if lines(self.metrics) < 5:
            self.kill()
            sys.exit(f"no run began: {self.text()}")
        time.sleep(random.random() / 4)
        self.pids = self.processes() if transport == "MPI" else [one.pid for one in self.started]

    def start(self, command, variables, says):
        with open(says, "wb") as out:
            return subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def processes(self):
        pids = {}
        for path in pathlib.Path(f"/proc/{self.started[0].pid}/task").glob("*/children"):
            for pid in path.read_text().split():
                for variable in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                        pids[int(variable.split(b"=")[1])] = int(pid)
        return [pids[rank] for rank in range(RANKS)]

    def text(self):
        return "\n".join(path.read_text(errors="replace") for path in self.says if path.exists())

    def kill(self):
        for one in self.started:
            if one.poll() is None:
                one.kill()
            one.wait()


def disturbed(bench, transport, number, name):
    """Sends the signal to a rank in mid-step: (ended with 4 or as mpirun ends, hung, cause named, seconds until named)."""
    ranks = Ranks(bench, transport, f"{name}-{transport}")
    os.kill(ranks.pids[VICTIM], number)
    begin, named = time.monotonic(), None
    survivors = [one for rank, one in enumerate(ranks.started) if transport == "MPI" or rank != VICTIM]
    # mpirun ends the others itself when one is killed, and says which.
    causes = [rf"rank {VICTIM} (is gone|does not answer)", rf"process rank {VICTIM} with PID .* exited on signal"]
    while time.monotonic() < begin + HANGS:
        if named is None and any(re.search(cause, ranks.text()) for cause in causes):
            named = time.monotonic() - begin
        if all(one.poll() is not None for one in survivors):
            break
        time.sleep(0.01)
    if named is None and any(re.search(cause, ranks.text()) for cause in causes):
        named = time.monotonic() - begin
    hung = any(one.poll() is None for one in survivors)
    wanted = {4} if transport == "TCP" else {4, 128 + number}
    ended = not hung and all(one.returncode in wanted for one in survivors)
    if transport == "TCP":
        ranks.started[VICTIM].kill()
    ranks.kill()
    return ended, hung, named


def rows_of_signal(bench, fault, number, runs):
    for transport in ("TCP", "MPI"):
        outcomes = []
        for run in range(runs):
            outcomes.append(disturbed(bench, transport, number, fault.split()[0]))
            print(f"{fault} over {transport}, run {run + 1}: ended {outcomes[-1][0]}, hung {outcomes[-1][1]}, named after "
                  f"{outcomes[-1][2]}", flush=True)
        named = [seconds for _, _, seconds in outcomes if seconds is not None]
        yield [fault, transport, runs, sum(ended for ended, _, _ in outcomes), sum(hung for _, hung, _ in outcomes),
               len(named), *seconds_of(named)]


def lost_ranks(bench):
    """A rank is killed in mid-step. All ranks of one process end with it: there is nobody to tell."""
    yield from rows_of_signal(bench, "killed ranks", signal.SIGKILL, 20)


def stopped_ranks(bench):
    """A rank is stopped in mid-step. Of ranks in one process all stop; a rank there that hangs is a unit test's."""
    yield from rows_of_signal(bench, f"stopped ranks, --step-timeout {TIMEOUT}", signal.SIGSTOP, 20)


PARTS = {"strangers": strangers, "lost-ranks": lost_ranks, "stopped-ranks": stopped_ranks, "going-on": going_on,
         "kills": kills, "full-disks": full_disks, "stale-listings": stale_listings, "crossed-runs": crossed_runs,
         "planted-mirrors": planted_mirrors}


def table(rows):
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join(head + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", help=" ".join(PARTS))
    args = parser.parse_args()
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"no part '{part}'")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args.build.resolve(), pathlib.Path(scratch))
        for part in args.parts or PARTS:
            text = table(list(PARTS[part](bench)))
            print(text, flush=True)
            if args.write:
                begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
                before, rest = args.write.read_text().split(begin)
                args.write.write_text(before + begin + "\n" + text + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
