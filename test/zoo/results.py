#!/usr/bin/env python3
"""What run.py found, in Markdown: results.py RESULTS.jsonl [--page]. The last row of a case counts.

RESULTS.md has a row a file, with all that was run of it; docs/results/zoo.md (--page) a row an architecture, on one device.
"""
import collections
import json
import pathlib
import sys

CASES = pathlib.Path(__file__).resolve().parent / "cases"
COLUMNS = {"one": "one device", "zero3": "zero3", "tp2": "tp=2", "pp2": "pp=2", "export": "export"}
EXPORTERS = {"dynamo": "`dynamo`", "torchscript": "TorchScript"}


def table(head, rows):
    print("\n".join(f"| {' | '.join(map(str, row))} |" for row in [head, *rows]).replace("|\n", f"|\n|{'---|' * len(head)}\n", 1))


def known(case):
    file = CASES / case / "expected.json"
    return file.exists() and json.loads(file.read_text()).get("known")


def every_file(rows):
    columns = [column for column in COLUMNS if any(column in row for row in rows.values())]
    found = []
    for case in sorted(rows):
        verdicts = [rows[case].get(column, ["-"])[0] for column in columns]
        verdicts[-1] += f" ({known(case)})" if known(case) else ""
        found.append([*case.rsplit(".", 1), *verdicts])
    table(["architecture", "exporter", *(COLUMNS[column] for column in columns)], found)


def verdict(row):
    """What trains otherwise, or only rounds otherwise, may show in the exported weights alone."""
    return "FAR" if row["one"][0] == "equal" and row.get("export", ["-"])[0].startswith("FAR") else row["one"][0]


def page(rows):
    verdicts = {case: verdict(row) for case, row in rows.items()}
    kinds = sorted(set(verdicts.values()))
    counts = collections.Counter((case.rsplit(".", 1)[1], kind) for case, kind in verdicts.items())
    table(["exporter", *kinds], [[said, *(counts[exporter, kind] for kind in kinds)] for exporter, said in EXPORTERS.items()])
    print()
    names = sorted({case.rsplit(".", 1)[0] for case in verdicts})
    table(["architecture", *EXPORTERS.values()],
          [[name, *(verdicts.get(f"{name}.{exporter}", "not exported") for exporter in EXPORTERS)] for name in names])


def main():
    rows = collections.defaultdict(dict)
    for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        rows[row.pop("case")].update(row)
    page(rows) if "--page" in sys.argv else every_file(rows)


main()
