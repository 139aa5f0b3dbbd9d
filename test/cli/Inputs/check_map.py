"""Checks the map of the split on a page against the report's JSON: check_map.py PAGE.html REPORT.json"""
import html.parser
import json
import re
import sys


class Map(html.parser.HTMLParser):
    """Parts, and the text and classes of each operation's elements."""

    def __init__(self):
        super().__init__()
        self.parts, self.open = [], []

    def handle_starttag(self, tag, attributes):
        classes = dict(attributes).get("class", "")
        if tag in ("meta", "input"):
            return
        self.open.append((tag, classes))
        if tag == "details" and classes == "part":
            self.parts.append({"summary": "", "operations": []})
        if tag == "details" and classes == "operation":
            self.parts[-1]["operations"].append({"name": "", "op": "", "lines": [], "price": "", "chips": ""})
        if tag == "li" and self.inside("operation"):
            self.parts[-1]["operations"][-1]["lines"].append("")

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        self.open.pop()

    def inside(self, classes):
        return any(known == classes for _, known in self.open)

    def handle_data(self, data):
        if self.inside("operation"):
            operation, tags = self.parts[-1]["operations"][-1], [tag for tag, _ in self.open]
            if self.inside("name"):
                operation["name"] += data
            elif "li" in tags:
                operation["lines"][-1] += data
            elif "pre" in tags:
                operation["price"] += data
            elif "b" in tags:
                operation["op"] += data
            elif self.inside("axis-name"):
                operation["chips"] += data + " "
        elif self.inside("part"):
            self.parts[-1]["summary"] += data


def unfolded(text):
    numbers = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)(?:\.\.(\d+))?(.*)", text)
    if numbers:
        head, first, last, distance, tail = numbers.groups()
        return [f"{head}{number}{tail}" for number in range(int(first), int(last) + 1, int(distance or 1))]
    braces = re.fullmatch(r"(.*?)\{(.*)\}(.*)", text)
    return [f"{braces[1]}{middle}{braces[3]}" for middle in braces[2].split(",")] if braces else [text]


def words(layout):
    """"[{},{tp}]" of a matrix as "columns over tp"."""
    dims = [axes.split(",") for axes in re.findall(r"\{(.*?)\}", layout)]
    names = {1: ["elements"], 2: ["rows", "columns"]}.get(len(dims))
    if not names:
        return None
    split = [f"{name} over {' and '.join(axes)}" for name, axes in zip(names, dims) if axes != [""]]
    return ", ".join(split) or "whole on every device"


page, report = Map(), json.load(open(sys.argv[2]))
page.feed(open(sys.argv[1]).read())
shown = [operation for part in page.parts for operation in part["operations"]]
# By the modules' names where the exporter tells them, else by those of the file; in either case with all repetitions.
for one, node in zip(shown, report["nodes"], strict=True):
    names = unfolded(one["name"])
    assert names == node["names"] or len(names) in (1, len(node["names"])), (names, node["names"])
assert [one["op"] for one in shown] == [node["op"] for node in report["nodes"]]
parts = list(dict.fromkeys(node["part"] for node in report["nodes"]))
assert len(page.parts) == len(parts) and all(part["summary"].startswith(name) for part, name in zip(page.parts, parts))
if report["mesh"].get("pp", 1) > 1:
    assert any("stage" in part["summary"] for part in page.parts)
for one, node in zip(shown, report["nodes"]):
    chosen = next(candidate for candidate in node["candidates"] if candidate.get("chosen"))
    assert set(one["chips"].split()) == {axis for axes in chosen["split"] for axis in axes}, (one["chips"], chosen)
    assert "chosen" in one["price"] and one["price"].startswith(node["names"][0])
    assert any(line.startswith("makes ") for line in one["lines"]), one
lines = [line for one in shown for line in one["lines"]]
# A matrix or vector lies as the report's layout says, as it is read or between steps.
told = 0
for row in report["parameters"]:
    about = [line for line in lines if line.startswith(f"parameter {row['name']} ")]
    said = words(row["layout"])
    if not about or said is None:
        continue
    told += 1
    assert any(re.search(rf"(?:: |between steps ){re.escape(said)}(?:;|$)", line) for line in about), (row, about)
assert told > 4
# A collective stands at the operation that makes its tensor, or that reads its parameter.
for row in report["tensor_collectives"]:
    text = f"{row['op']} over {','.join(row['axes'])} of {row['tensor']}, "
    if row["tensor"] == "gradients' norm":
        continue
    places = [(one, node["names"]) for one, node in zip(shown, report["nodes"]) if any(line.startswith(text) and line.endswith(row["why"]) for line in one["lines"])]
    assert len(places) == 1, (text, len(places))
    one, names = places[0]
    assert row["tensor"] in names or any(line.startswith(f"parameter {row['tensor']} ") for line in one["lines"]), (row["tensor"], names)
print(f"{len(page.parts)} parts, {len(shown)} operations, {told} parameters")
