#!/usr/bin/env python3
"""Spoils a plan: the first two actions of the first pipeline rank change places, and so do their sends.

    swap_actions.py IN.plan OUT.plan
"""
import pathlib
import sys

from plan_file import HEADER, messages, seal

data = bytearray(pathlib.Path(sys.argv[1]).read_bytes())
program = next(messages(data, HEADER, len(data), 4))
routine = next(messages(data, program[1], program[2], 6))
(first, _, middle), (_, _, last) = list(messages(data, routine[1], routine[2], 2))[:2]
data[first:last] = data[middle:last] + data[first:middle]
pathlib.Path(sys.argv[2]).write_bytes(seal(data))
