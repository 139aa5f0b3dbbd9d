#!/usr/bin/env python3
"""Spoils a plan: in the unsplit model that it carries, SGD's momentum of 0.9 is 0.8.

    other_momentum.py IN.plan OUT.plan
"""
import pathlib
import struct
import sys

from plan_file import HEADER, messages, seal, seal_code

data = bytearray(pathlib.Path(sys.argv[1]).read_bytes())
_, begin, end = next(messages(data, HEADER, len(data), 10))
was = bytes(data[begin:end])
data[begin:end] = was.replace(struct.pack("<f", 0.9), struct.pack("<f", 0.8))
assert bytes(data[begin:end]) != was, "no momentum of 0.9 found"
pathlib.Path(sys.argv[2]).write_bytes(seal(seal_code(data)))
