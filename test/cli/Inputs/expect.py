"""Checks what files hold. Every EXPRESSION of Python must be true; it may use the names that stand before it.

    expect.py NAME=FILE|- NAME:=EXPRESSION EXPRESSION...

    expect.py r=report.json "r.devices == 8" "all(p.bytes > 0 for p in r.parameters)"
    expect.py a=one.jsonl b=two.jsonl "losses(a) == losses(b)"

By its suffix a FILE is an object (json, - too), a list of objects, one per line (jsonl), arrays by name (npz, safetensors),
or text; FILE:KIND says it where the suffix does not, FILE:header has the header of a safetensors file. An object's keys are
attributes as well.
"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))


class Object(dict):
    def __getattr__(self, key):
        if key not in self:
            raise AttributeError(f"no '{key}' among {', '.join(self)}")
        return self[key]


def parse(text):
    return json.loads(text, object_hook=Object)


def read(path):
    path, _, kind = path.partition(":")
    kind = kind or ("json" if path == "-" else pathlib.Path(path).suffix[1:])
    if kind == "npz":
        import numpy
        return dict(numpy.load(path))
    if kind == "safetensors":
        import golden
        return golden.read_safetensors(pathlib.Path(path))
    if kind == "header":
        content = pathlib.Path(path).read_bytes()
        header = parse(content[8:8 + int.from_bytes(content[:8], "little")])
        header.pop("__metadata__", None)
        return header
    text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text()
    return parse(text) if kind == "json" else [parse(line) for line in text.splitlines()] if kind == "jsonl" else text


def losses(lines):
    return [line.loss for line in lines if "loss" in line]


def evaluations(lines):
    return [line.eval_loss for line in lines if "eval_loss" in line]


def near(a, b, tolerance):
    """Numbers, or lists of them, as far apart as `tolerance` of `b` at most."""
    pairs = list(zip(a, b, strict=True)) if isinstance(a, list) else [(a, b)]
    return all(abs(x - y) <= tolerance * abs(y) for x, y in pairs)


def close(a, b, tolerance):
    """Arrays whose elements are as far apart as `tolerance` at most."""
    return a.shape == b.shape and bool((abs(a - b) <= tolerance).all())


def main():
    names = {"losses": losses, "evaluations": evaluations, "near": near, "close": close, "re": re, "json": json}
    checks = 0
    for argument in sys.argv[1:]:
        file, value = re.fullmatch(r"(\w+)=([^=\s]\S*)", argument), re.fullmatch(r"(\w+) ?:= ?(.*)", argument, re.S)
        if file:
            names[file[1]] = read(file[2])
        elif value:
            names[value[1]] = eval(value[2], names)
        elif eval(argument, names):
            checks += 1
        else:
            print(f"not so: {argument}")
            for name in dict.fromkeys(re.findall(r"\w+", argument)):
                if name in names and not callable(names[name]) and type(names[name]).__name__ != "module":
                    print(f"    {name} = {repr(names[name])[:2000]}")
            return 1
    return 0 if checks else "expect.py: nothing was checked"


if __name__ == "__main__":
    sys.exit(main())
