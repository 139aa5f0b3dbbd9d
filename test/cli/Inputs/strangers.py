"""Strangers who connect to where the ranks of a run meet, in ten ways; with a command, a run among them.

    strangers.py FOLDER PROCESSES COMMAND...   the command as so many ranks, under torchrun's variables and with a secret:
                                               50 strangers come before the last rank, 50 between the steps

Prints how the ranks ended, what they said on standard error, and how many strangers came. COMMAND writes metrics to
FOLDER/metrics.jsonl.
"""
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import threading
import time

from free_port import free_port

MAGIC, VERSION, CONTROL_LANE = 0x434C5643, 2, 2


def hello(rank=1, lane=CONTROL_LANE, size=4, plan=bytes(32), port=4242):
    return struct.pack("<IIiiiiI", MAGIC, VERSION, rank, 0, lane, size, port) + plan + random.randbytes(32)


def receive(peer, count):
    got = b""
    while len(got) < count:
        more = peer.recv(count - len(got))
        if not more:
            break
        got += more
    return got


def close(peer): pass
def say_nothing(peer): receive(peer, 1)
def random_bytes(peer): peer.sendall(random.randbytes(4096)), receive(peer, 1)
def http(peer): peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), receive(peer, 1)
def tls(peer): peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(508)), receive(peer, 1)
def half_a_greeting(peer): peer.sendall(hello()[:40]), receive(peer, 1)


def wrong_proof(peer):
    peer.sendall(hello())
    receive(peer, 80)
    peer.sendall(struct.pack("<I", MAGIC) + random.randbytes(32))
    receive(peer, 40)


def echo(peer):  # what rank 0 says of itself, its plan's digest among it, as one's own
    peer.sendall(hello())
    answer = receive(peer, 80)
    peer.sendall(answer[:4] + answer[-32:])
    receive(peer, 40)


def a_byte_a_second(peer):
    for byte in hello():
        peer.sendall(bytes([byte]))
        time.sleep(1)


def huge_numbers(peer):
    peer.sendall(struct.pack("<IIiiiiI", MAGIC, VERSION, 2**31 - 1, 0, 2**31 - 1, 2**31 - 1, 2**32 - 1) + bytes(1 << 20))
    receive(peer, 1)


KINDS = [close, say_nothing, random_bytes, http, tls, half_a_greeting, wrong_proof, echo, a_byte_a_second, huge_numbers]


class Strangers:
    """So many connections to a port, of each kind in turn, all at once."""

    def __init__(self, port, count):
        self.came = self.refused = 0
        self.lock, self.ready = threading.Lock(), threading.Semaphore(0)
        self.threads = [threading.Thread(target=self.visit, args=(port, KINDS[number % len(KINDS)]), daemon=True)
                        for number in range(count)]
        for thread in self.threads:
            thread.start()
        for _ in self.threads:
            self.ready.acquire()

    def visit(self, port, kind):
        with socket.socket() as peer:
            peer.settimeout(20)
            came = peer.connect_ex(("127.0.0.1", port)) == 0
            with self.lock:
                self.came, self.refused = self.came + came, self.refused + (not came)
            self.ready.release()
            try:
                if came:
                    kind(peer)
            except OSError:
                pass  # it was shown the door


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def run_among(folder, count, command, port):
    """The ranks' exit statuses and what they said, and the strangers at the start and between the steps."""
    metrics = pathlib.Path(folder) / "metrics.jsonl"
    secret = random.randbytes(16).hex()

    def start(rank):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                     "CLEAVE_SECRET": secret}
        return subprocess.Popen(command, env=dict(os.environ) | variables, stdin=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    ranks = [start(0)]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and ranks[0].poll() is None:  # until rank 0 listens
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    first = Strangers(port, 50)
    ranks += [start(rank) for rank in range(1, count)]
    while time.monotonic() < deadline and lines(metrics) < 20 and all(rank.poll() is None for rank in ranks):
        time.sleep(0.02)
    second = Strangers(port, 50)
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    return [rank.returncode for rank in ranks], said, first, second


if __name__ == "__main__":
    statuses, said, first, second = run_among(sys.argv[1], int(sys.argv[2]), sys.argv[3:], free_port())
    for rank, (status, text) in enumerate(zip(statuses, said)):
        print(f"rank {rank} ended with {status}\n{text}", end="")
    print(f"{first.came} strangers came at the start, {second.came + second.refused} between the steps, "
          f"of whom {second.came} found somebody listening")
