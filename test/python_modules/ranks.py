"""Runs a script of this folder as ranks on this host, under torchrun's variables, and gives what they print, by rank.

    for text in run_ranks(2, "local_batches.py", "rank", plan): ...
"""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "cli" / "Inputs"))
from free_port import free_port  # noqa: E402


def run_ranks(count, script, *arguments):
    own = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
           "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen([sys.executable, str(HERE / script), *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                                env={**os.environ, **own, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)]
    told = [one.communicate(timeout=120)[0] for one in started]
    assert not any(one.returncode for one in started), [(one.returncode, text) for one, text in zip(started, told)]
    return told
