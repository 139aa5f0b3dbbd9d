#!/usr/bin/env python3
"""Is every key of JSON files in a page's tables?   documented_keys.py PAGE FILE...

Keys are paths, as the tables write them: `stages.rank`. A file holds one object, or one a line. A mesh is one value.
"""
import json
import pathlib
import re
import sys


def leaves(value, path):
    if isinstance(value, dict) and not path.endswith("mesh"):
        for key, entry in value.items():
            yield from leaves(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        for entry in value:
            yield from leaves(entry, path)
    else:
        yield path


page = pathlib.Path(sys.argv[1])
rows = [line.split("|")[1] for line in page.read_text().splitlines() if line.startswith("| `")]
documented = {key for row in rows for key in re.findall(r"`([\w.]+)`", row)}
found = set()
for name in sys.argv[2:]:
    text = pathlib.Path(name).read_text()
    objects = [text] if name.endswith(".json") else text.splitlines()
    found |= {path for entry in objects for path in leaves(json.loads(entry), "")}
if missing := sorted(found - documented):
    sys.exit(f"{page} lacks {', '.join(missing)}")
print("not met:", ", ".join(sorted(documented - found)) or "none")
