#!/usr/bin/env python3
"""Spoils a plan: the first two actions of the first pipeline rank change places, and so do their sends.

    swap_actions.py IN.plan OUT.plan
"""
import pathlib
import struct
import sys
import zlib


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def messages(data, begin, end, wanted):
    """Where the submessages with a field's number lie: begin with their tags, begin, end."""
    at = begin
    while at < end:
        start = at
        tag, at = varint(data, at)
        if tag & 7 == 2:
            size, at = varint(data, at)
            if tag >> 3 == wanted:
                yield start, at, at + size
            at += size
        elif tag & 7 == 0:
            at = varint(data, at)[1]
        else:
            at += 8 if tag & 7 == 1 else 4


HEADER = 40  # runtime/plan/plan_file.cpp
data = bytearray(pathlib.Path(sys.argv[1]).read_bytes())
program = next(messages(data, HEADER, len(data), 4))
routine = next(messages(data, program[1], program[2], 6))
(first, _, middle), (_, _, last) = list(messages(data, routine[1], routine[2], 2))[:2]
data[first:last] = data[middle:last] + data[first:middle]
struct.pack_into("<I", data, 32, zlib.crc32(data[HEADER:]))
struct.pack_into("<I", data, 12, zlib.crc32(data[:12], zlib.crc32(data[16:HEADER])))
pathlib.Path(sys.argv[2]).write_bytes(data)
