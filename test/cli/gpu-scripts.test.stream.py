import json
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from stream import Cases  # noqa: E402

cases = Cases(sys.argv[2], time.monotonic() + 60)
# The process that the shell has started keeps the pipe open: it has to end too.
cases.run("slow", ["sh", "-c", "echo PASS one; echo FAIL two: broken; sleep 1000 & echo $!; wait"], limit=5)
cases.run("bad", ["sh", "-c", "echo said nothing; exit 3"])
print((pathlib.Path(sys.argv[2]) / "cases.jsonl").read_text(), end="")
print(json.dumps(cases.counts))
started = int((pathlib.Path(sys.argv[2]) / "slow.txt").read_text().split("\n")[2])
for _ in range(100):  # until init has taken it
    if not os.path.exists(f"/proc/{started}") or " Z " in open(f"/proc/{started}/stat").read():
        break
    time.sleep(0.1)
print(f"ended: {_ < 99}, cut: {sorted(cases.cut)}")
cases.deadline = time.monotonic()
print("not begun:", cases.run("late", ["touch", sys.argv[2] + "/late"]) is False and not os.path.exists(sys.argv[2] + "/late"))
