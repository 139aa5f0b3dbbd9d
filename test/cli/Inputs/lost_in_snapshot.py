"""Two ranks step once; then the second is lost, and the first one writes a snapshot.

    lost_in_snapshot.py LIBRARY PLAN FOLDER kill|stop

Prints how the first one's snapshot failed, by the C interface. A stopped rank goes on when it has.
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

from free_port import free_port


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p), ("model", ctypes.c_char_p),
                ("snapshots", ctypes.c_char_p), ("resume", ctypes.c_int), ("threads", ctypes.c_int),
                ("step_timeout", ctypes.c_double)]


def run(library, plan, folder):
    cleave = ctypes.CDLL(library)
    cleave.cleave_open.restype = ctypes.c_void_p
    cleave.cleave_error.restype = ctypes.c_char_p
    options = Options(ctypes.sizeof(Options), None, None, folder.encode(), 0, 1, 2.0)
    training = ctypes.c_void_p(cleave.cleave_open(plan.encode(), ctypes.byref(options)))
    if not training or cleave.cleave_step(training, None) != 0:
        sys.exit(f"no step: {cleave.cleave_error(training)}")
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    status = cleave.cleave_snapshot(training)
    print(f"status {status} within {'5 s' if time.monotonic() - begin < 5 else 'more'}: "
          f"{cleave.cleave_error(training).decode()}", flush=True)
    os._exit(0)


if sys.argv[1] == "rank":
    run(*sys.argv[2:])
how = sys.argv[4]
port = free_port()
ranks = [subprocess.Popen([sys.executable, __file__, "rank", *sys.argv[1:4]], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ) | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                  "MASTER_PORT": str(port)}) for rank in range(2)]
for rank in ranks:
    if rank.stdout.readline() != "ready\n":
        sys.exit("a rank did not start")
ranks[1].send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
print(ranks[0].communicate("go\n", timeout=60)[0], end="")
ranks[1].kill()
ranks[1].wait()
