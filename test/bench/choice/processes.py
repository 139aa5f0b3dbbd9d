#!/usr/bin/env python3
"""The same data-parallel plan with a thread a rank and with a process a rank, beside one rank with as many threads and PyTorch's DDP.

    ./dev bench processes
    processes.py --build BUILD [--models mingpt,classifier] [--devices 2] [--rounds 4] [--steps 6]

All take turns in every round; PyTorch's ranks start anew in each, too. A figure is the median of the steps after the first three of
each turn.
"""
import argparse
import json
import os
import pathlib
import statistics
import tempfile

from choice import COMPILE_SECONDS, RUN_SECONDS, HERE, call, find_torch, finish, free_port, start

WARMUP = 3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="mingpt,classifier")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6, help="that count, of a turn")
    options = parser.parse_args()
    cleave, devices, (python, environment) = options.build.resolve() / "bin/cleave", options.devices, find_torch()
    threads = max(1, len(os.sched_getaffinity(0)) // devices)

    def run(folder, plan, threads):
        metrics = folder / "m.jsonl"
        metrics.unlink(missing_ok=True)
        return metrics, [cleave, "run", plan, "--steps", WARMUP + options.steps, "--threads", threads, "--metrics", metrics, "--quiet"]

    def ranks(command, environment):
        met = {**environment, "WORLD_SIZE": str(devices), "LOCAL_WORLD_SIZE": str(devices), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(free_port())}
        return finish([start(command, {**met, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(devices)], RUN_SECONDS)

    def seconds(metrics):
        return [json.loads(line)["step_time_s"] for line in metrics.read_text().splitlines() if '"loss"' in line][WARMUP:]

    def in_one(folder, plan, threads):
        metrics, command = run(folder, plan, threads)
        call(command, RUN_SECONDS)
        return seconds(metrics)

    def in_processes(folder, more):
        metrics, command = run(folder, folder / "ddp", threads)
        ranks(command, {**os.environ, **more})
        return seconds(metrics)

    def in_torch(model):
        outputs = ranks([python, HERE / "torch_rank.py", model, "ddp", WARMUP + options.steps, threads],
                        {**environment, "OMP_NUM_THREADS": str(threads)})
        return json.loads(outputs[0].splitlines()[-1])[WARMUP:]

    for model in options.models.split(","):
        with tempfile.TemporaryDirectory(prefix="cleave-processes-") as scratch:
            folder = pathlib.Path(scratch)
            call([python, HERE / "models.py", "export", model, folder], COMPILE_SECONDS, environment)
            for plan, count in (("one", 1), ("ddp", devices)):
                call([cleave, "compile", folder / "model.onnx", "--recipe", folder / "recipe.yaml", "--cluster", f"cpu:{count}", "--like", "ddp",
                      "--no-proof", "-o", folder / plan], COMPILE_SECONDS)
            turns = {f"one rank, {devices * threads} threads": lambda: in_one(folder, folder / "one", devices * threads),
                     f"ddp, {devices} ranks of one process": lambda: in_one(folder, folder / "ddp", threads),
                     f"ddp, {devices} processes": lambda: in_processes(folder, {}),
                     f"ddp, {devices} processes, CLEAVE_SHARED_MEMORY=0": lambda: in_processes(folder, {"CLEAVE_SHARED_MEMORY": "0"}),
                     f"PyTorch DDP, {devices} processes": lambda: in_torch(model)}
            times = {name: [] for name in turns}
            for turn in range(options.rounds):
                for name in list(turns)[::1 if turn % 2 == 0 else -1]:
                    times[name] += turns[name]()
            print((folder / "title").read_text())
            one = statistics.median(next(iter(times.values())))
            for name, all_times in times.items():
                median = statistics.median(all_times)
                print(f"  {name:44s} {1000 * median:9.1f} ms   {median / one:5.2f}", flush=True)


if __name__ == "__main__":
    main()
