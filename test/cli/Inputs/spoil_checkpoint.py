#!/usr/bin/env python3
"""Cuts a checkpoint of onnxruntime-training's artifacts at places all over it, and changes single bytes.

    spoil_checkpoint.py ARTIFACTS SCRATCH

A cut one is refused, by name; one with a changed byte is refused by name or read, and never crashes the tool.
"""
import pathlib
import shutil
import subprocess
import sys

source, scratch = map(pathlib.Path, sys.argv[1:])
shutil.rmtree(scratch, ignore_errors=True)
shutil.copytree(source, scratch)
whole = (source / "checkpoint").read_bytes()


def inspect(content):
    (scratch / "checkpoint").write_bytes(content)
    done = subprocess.run(["cleave", "inspect", scratch], capture_output=True, text=True, errors="replace")
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    assert done.returncode == 0 or f"{scratch}/checkpoint" in done.stderr, done.stderr
    return done.returncode


cuts = [inspect(whole[:size]) for size in [0, 4, 7, 8, *range(20, len(whole), 67), len(whole) - 8]]
assert all(cuts), cuts
changes = [inspect(whole[:at] + bytes([whole[at] ^ 0x84]) + whole[at + 1:]) for at in range(0, len(whole), 13)]
assert any(changes) and not all(changes), changes
print(f"{len(cuts)} cuts refused, {sum(changes)} of {len(changes)} changes refused")
