#!/usr/bin/env python3
"""Steps on a machine that others use, too: minGPT nano in fp32 on all cores, beside so many busy loops of equal priority.

A step's fair share: T threads and L loops on C cores get T C / (T + L) cores' time for the threads, where that is less
than T. A step that uses its share as well as an idle machine takes 1.0 times it; 3.0 is the bound.

    busy.py --build BUILD [--threads N] [--loops 0,1,2,4,8]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MODELS = pathlib.Path(__file__).resolve().parents[3] / "models/mingpt"
STEPS, WARMUP, BOUND = 40, 5, 3.0


def step_times(build, plan, threads, folder):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    subprocess.run([build / "bin/cleave", "run", plan, "--steps", str(STEPS), "--threads", str(threads), "--metrics", metrics,
                    "--quiet"], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return sorted(1000 * line["step_time_s"] for line in lines if "loss" in line and line["step"] > WARMUP)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--loops", default="0,1,2,4,8")
    args = parser.parse_args()
    cores, idle, missed = len(os.sched_getaffinity(0)), None, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        plan = folder / "x.plan"
        subprocess.run([args.build / "bin/cleave", "compile", MODELS / "nano.onnx", "--recipe", MODELS / "nano.yaml", "--cluster",
                        "cpu:1", "-o", plan], check=True, stdout=subprocess.DEVNULL)
        print(f"minGPT nano, fp32, {args.threads} threads on {cores} cores, ms\n  loops       min    median       max   of its share")
        for loops in map(int, args.loops.split(",")):
            neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
            try:
                times = step_times(args.build, plan, args.threads, folder)
            finally:
                for neighbour in neighbours:
                    neighbour.kill()
                    neighbour.wait()
            median = statistics.median(times)
            idle = idle or median
            share = max(1.0, (args.threads + loops) / cores) * idle
            missed += median > BOUND * share
            print(f"  {loops:5d} {times[0]:9.1f} {median:9.1f} {times[-1]:9.1f}   {median / share:6.2f}", flush=True)
    print(f"{missed} rows take more than {BOUND:g} times their share")


if __name__ == "__main__":
    main()
