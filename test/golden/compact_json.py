"""JSON whose lists and innermost objects are one line each, so that a tensor or a series of losses can be read and compared.

    compact_json.py FILE...      writes files anew
"""
import json
import pathlib
import sys


def text(value, indent=""):
    one = json.dumps(value)
    if not isinstance(value, dict) or len(indent + one) <= 120 or not any(isinstance(part, (dict, list)) for part in value.values()):
        return one
    lines = [f"{indent} {json.dumps(key)}: {text(part, indent + ' ')}" for key, part in value.items()]
    return "{\n" + ",\n".join(lines) + "\n" + indent + "}"


if __name__ == "__main__":
    for path in map(pathlib.Path, sys.argv[1:]):
        path.write_text(text(json.loads(path.read_text())) + "\n")
