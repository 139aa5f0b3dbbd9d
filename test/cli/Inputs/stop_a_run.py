"""Starts a run, sends a signal to one of its processes when the metrics file has some lines, and tells how it ended.

    stop_a_run.py SIGNAL PROCESSES METRICS cleave run ... --metrics METRICS

SUSPENDED=6 in the environment: before, all are stopped for 6 seconds and go on, twice. With 2 processes and more the signal goes to the last rank only. Prints each process's status and what it said, and
writes METRICS.more, the number of the last step and 200.
"""
import os
import pathlib
import signal
import subprocess
import sys
import time

from free_port import free_port

number, count, metrics, command = getattr(signal, sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4:]
port = free_port()


def start(rank):
    variables = dict(os.environ)
    if count > 1:
        variables |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)


ranks = [start(rank) for rank in range(count)]
deadline = time.monotonic() + 120
while time.monotonic() < deadline and all(rank.poll() is None for rank in ranks):
    if metrics.exists() and metrics.read_bytes().count(b"\n") >= 20:
        break
    time.sleep(0.01)
for _ in range(2 if "SUSPENDED" in os.environ else 0):
    for rank in ranks:
        rank.send_signal(signal.SIGSTOP)
    time.sleep(float(os.environ["SUSPENDED"]))
    for rank in ranks:
        rank.send_signal(signal.SIGCONT)
    time.sleep(1)
ranks[-1].send_signal(number)
for rank, process in enumerate(ranks):
    said = process.communicate(timeout=120)[1]
    print(f"rank {rank} ended with {process.returncode}\n{said}")
pathlib.Path(f"{metrics}.more").write_text(str(metrics.read_bytes().count(b"\n") + 200))
