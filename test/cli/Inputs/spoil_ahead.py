#!/usr/bin/env python3
"""Spoils a plan whose steps run into each other, in the first pipeline rank.

    spoil_ahead.py step|slot|version|fill IN.plan OUT.plan

step: the first action of the next step becomes one of this step. slot: the step's first forward pass lies where the step
before has put what it did ahead. version: what is ahead reads the weights before the last update. fill: the routine that
begins a training has another name.
"""
import pathlib
import sys

from plan_file import HEADER, messages, seal, varint


def fields(data, begin, end):
    """Of a message of numbers: where each one's value stands (one byte each), by number."""
    found, at = {}, begin
    while at < end:
        tag, at = varint(data, at)
        found[tag >> 3] = at
        at = varint(data, at)[1]
    return found


what, source, target = sys.argv[1:]
data = bytearray(pathlib.Path(source).read_bytes())
program = next(messages(data, HEADER, len(data), 4))
named = {}
for _, begin, end in messages(data, program[1], program[2], 6):
    _, first, last = next(messages(data, begin, end, 1))
    named[data[first:last].decode()] = begin, end, first
begin, end, _ = named["step"]
actions = [fields(data, *action[1:]) for action in messages(data, begin, end, 2)]
ahead = next(action for action in actions if 4 in action)
forward = actions[0]
if what == "step":
    data[ahead[4]] = 0
elif what == "slot":
    data[forward[3]] = 0
elif what == "version":
    data[ahead[1]] = data[forward[1]] if 1 in forward else 0
else:
    data[named["fill"][2]] = ord("h")
pathlib.Path(target).write_bytes(seal(data))
