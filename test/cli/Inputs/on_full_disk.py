"""Runs a command whose files may not grow, as on a full disk, and which should replace a file with its output.

    on_full_disk.py FILE COMMAND...

The command fails and names FILE and the reason, FILE stays what it was, and no other file is left beside it.
"""
import os
import pathlib
import resource
import signal
import subprocess
import sys

file = pathlib.Path(sys.argv[1])
file.write_text("what was there")
before = sorted(os.listdir())


def limit():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
said = done.stdout + done.stderr
assert done.returncode != 0, said
assert f"{file}: cannot be written: File too large" in said, said
assert file.read_text() == "what was there"
assert sorted(os.listdir()) == before, os.listdir()
file.unlink()
