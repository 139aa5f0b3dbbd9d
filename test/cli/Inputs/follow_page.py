#!/usr/bin/env python3
"""Does what a page of docs/guide tells its reader to do, in the current folder.

    follow_page.py PAGE

A ```yaml or ```python block after "save this as `FILE`" becomes that file; a ```sh block runs in bash and must end with
status 0. Other blocks are for the eye. Prints the commands with what they print.
"""
import pathlib
import re
import subprocess
import sys

page = pathlib.Path(sys.argv[1]).read_text()
followed, place = 0, 0
for block in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
    kind, text = block.groups()
    before = page[place:block.start()]
    place = block.end()
    if kind == "sh":
        print(f"$ {text}", flush=True)
        subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], check=True, stderr=subprocess.STDOUT)
        followed += 1
    elif names := re.findall(r"[Ss]ave this as `([^`]+)`", before):
        pathlib.Path(names[-1]).write_text(text)
print(f"followed {followed} blocks of {sys.argv[1]}")
sys.exit(0 if followed else f"{sys.argv[1]} has nothing to follow")
