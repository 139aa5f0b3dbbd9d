"""A run is asked to stop while it tells its first step, when the data of the second one was already refused.

    stop_at_bad_data.py FOLDER COMMAND ...      COMMAND writes its metrics to standard output

The pipe of the metrics is full until the signal was sent. FOLDER is the cache's, which gets a file when signals are
caught. Prints how the command ended, the steps that it told, and its last line of standard error.
"""
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

folder, *command = sys.argv[1:]
reads, writes = os.pipe()
fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
os.set_blocking(writes, False)
filled = 0
try:
    while True:
        filled += os.write(writes, b"\n" * 64)
except BlockingIOError:
    pass
os.set_blocking(writes, True)
process = subprocess.Popen(command, stdout=writes, stderr=subprocess.PIPE, text=True)
os.close(writes)
while process.poll() is None and not list(pathlib.Path(folder).rglob("*.txt")):
    time.sleep(0.01)
time.sleep(0.5)
process.send_signal(signal.SIGTERM)
with os.fdopen(reads) as pipe:
    told = pipe.read()
error = process.stderr.read()
steps = [json.loads(line)["step"] for line in told.split("\n") if '"loss"' in line]
print("ended with", process.wait(), "after steps", steps)
print(error.strip().split("\n")[-1])
