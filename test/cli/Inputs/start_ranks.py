"""Starts a command as so many ranks, under torchrun's variables, and fails if one of them does.

    start_ranks.py PROCESSES COMMAND...     "RANK" within a word of the command becomes the rank's number
"""
import os
import subprocess
import sys

from free_port import free_port

count, command = int(sys.argv[1]), sys.argv[2:]
port = free_port()


def start(rank):
    variables = {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen([word.replace("RANK", str(rank)) for word in command], env=dict(os.environ) | variables,
                            stdin=subprocess.DEVNULL)


ranks = [start(rank) for rank in range(count)]
ended = [rank.wait(timeout=300) for rank in ranks]
if any(ended):
    sys.exit(f"ranks ended with {ended}")
