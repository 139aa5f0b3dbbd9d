"""A port for ranks to meet at, that neither the kernel nor another test gives away meanwhile.

A port that the kernel chose is one that it may choose again, for any connection of any process, until it is listened at.
These lie below the kernel's range, and each process looks from a place of its own.
"""
import os
import socket

FIRST, COUNT, APART = 10000, 20000, 16  # a run that starts again takes the next port (CLEAVE_ATTEMPT)


def free_port():
    for turn in range(COUNT // APART):
        port = FIRST + (os.getpid() + turn) * APART % COUNT
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind(("", port))
                return port
            except OSError:
                continue
    raise OSError("no port is free")


if __name__ == "__main__":
    print(free_port())
