"""Starts the ranks of a run, each with its parent, kills one of them with all its processes, and waits for the others.

    lose_a_rank.py PROCESSES VICTIM METRICS cleave run ... --metrics METRICS

The victim dies when METRICS has 30 lines; METRICS is written by whoever is the first rank. Prints how the others ended,
the step after which they went on, and whether that took less than ten seconds.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from free_port import free_port

count, victim, metrics, command = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4:]
port = free_port()


def start(rank):
    variables = {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with open(f"{metrics}.rank-{rank}", "w") as said:
        return subprocess.Popen(command, env=dict(os.environ) | variables, stderr=said, start_new_session=True)


def lines():
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def wait_for(happened):
    deadline = time.monotonic() + 120
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)


ranks = [start(rank) for rank in range(count)]
wait_for(lambda: lines() >= 30)
os.killpg(ranks[victim].pid, signal.SIGKILL)
lost = time.monotonic()
said = [pathlib.Path(f"{metrics}.rank-{rank}") for rank in range(count) if rank != victim]
wait_for(lambda: any("resumed from step" in text.read_text() for text in said))
before = lines()
wait_for(lambda: lines() > before or all(process.poll() is not None for process in ranks))
took = time.monotonic() - lost
ended = [process.wait(timeout=60) for process in ranks]
print("ended with", [status for rank, status in enumerate(ended) if rank != victim])
texts = "".join(text.read_text() for text in said)
print("\n".join(line for line in texts.splitlines() if "left and go on" in line))
step = int(re.search(r"resumed from step (\d+)", texts).group(1))
print("went on in memory" if re.search(r"resumed from step \d+ in /dev/shm", texts) else "went on otherwise",
      "within 10 s," if took < 10 else "late,", f"after {took:.1f} s")
with open(metrics) as entries:
    steps = [json.loads(entry)["step"] for entry in entries]
print("steps lost:", "at most one" if steps == list(range(1, len(steps) + 1)) else steps)
pathlib.Path(f"{metrics}.step").write_text(str(step))
if os.environ.get("VERBOSE"):
    print(texts, file=sys.stderr)
