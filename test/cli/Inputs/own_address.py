"""Prints an address of this host that others can reach; where it has none, 127.0.0.1.

    own_address.py beyond      prints 1 where it has one, else 0
"""
import socket
import sys

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    try:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        address = probe.getsockname()[0]
    except OSError:
        address = "127.0.0.1"
print(int(not address.startswith("127.")) if sys.argv[1:] == ["beyond"] else address)
