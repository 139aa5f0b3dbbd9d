"""Runs a plan under torchrun's variables, kills one rank, and waits for the others.

    kill_a_rank.py FOLDER PROCESSES cleave run ...        with --snapshot FOLDER; kills when the first snapshot is there
    kill_a_rank.py --stop FILE PROCESSES cleave run ...   with --metrics FILE; stops the rank in a step after the 60th,
                                                          until another has ended

Prints how every process ended and what it said on standard error. With 1 process no variables are set.
"""
import os
import pathlib
import signal
import subprocess
import sys
import time

from free_port import free_port

stops = sys.argv[1] == "--stop"
given = sys.argv[1 + stops:]
place, count, command = pathlib.Path(given[0]), int(given[1]), given[2:]
port = free_port()


def start(rank):
    variables = dict(os.environ)
    if count > 1:
        variables |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_due():
    if stops:
        return place.exists() and place.read_bytes().count(b"\n") >= 60
    return bool(list(place.glob("step-*/manifest.json")))


ranks = [start(rank) for rank in range(count)]
deadline = time.monotonic() + 120
while not is_due() and all(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
    time.sleep(0.01)
victim = (children(ranks[-1].pid) or [ranks[-1].pid])[0]
os.kill(victim, signal.SIGSTOP if stops else signal.SIGKILL)
if stops:
    ranks[0].wait(timeout=120)
    os.kill(victim, signal.SIGCONT)
for rank, process in enumerate(ranks):
    said = process.communicate(timeout=120)[1]
    print(f"rank {rank} ended with {process.returncode}\n{said}")
