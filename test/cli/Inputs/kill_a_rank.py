"""Runs a plan under torchrun's variables, kills one rank, and waits for the others.

    kill_a_rank.py [--stop] FOLDER PROCESSES cleave run ...      with --snapshot FOLDER; kills when the first snapshot is there

Prints how every process ended and what it said on standard error. With 1 process no variables are set. --stop stops the
rank, until another has ended.
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

stops = sys.argv[1] == "--stop"
given = sys.argv[1 + stops:]
folder, count, command = pathlib.Path(given[0]), int(given[1]), given[2:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


def start(rank):
    variables = dict(os.environ)
    if count > 1:
        variables |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


ranks = [start(rank) for rank in range(count)]
deadline = time.monotonic() + 120
while not list(folder.glob("step-*/manifest.json")) and time.monotonic() < deadline:
    time.sleep(0.01)
victim = (children(ranks[-1].pid) or [ranks[-1].pid])[0]
os.kill(victim, signal.SIGSTOP if stops else signal.SIGKILL)
if stops:
    ranks[0].wait(timeout=120)
    os.kill(victim, signal.SIGCONT)
for rank, process in enumerate(ranks):
    said = process.communicate(timeout=120)[1]
    print(f"rank {rank} ended with {process.returncode}\n{said}")
