#!/usr/bin/env python3
"""The table of what run.py found, in Markdown: results.py RESULTS.jsonl [> RESULTS.md]. The last row of a case counts."""
import collections
import json
import pathlib
import sys

CASES = pathlib.Path(__file__).resolve().parent / "cases"
COLUMNS = ("one", "zero3", "tp2", "pp2", "export")


def main():
    rows = collections.defaultdict(dict)
    for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        rows[row.pop("case")].update(row)
    right, exporters = collections.Counter(), collections.Counter()
    print("| architecture | exporter | one device | zero3 | tp=2 | pp=2 | export |\n|---|---|---|---|---|---|---|")
    for case in sorted(rows):
        architecture, exporter = case.rsplit(".", 1)
        known = json.loads((CASES / case / "expected.json").read_text()).get("known")
        verdicts = [rows[case].get(column, ["-"])[0] for column in COLUMNS]
        exporters[architecture] += 1
        right[architecture] += all(verdict == "ok" for verdict in verdicts[:4])
        print(f"| {architecture} | {exporter} | " + " | ".join(verdicts) + (f" ({known})" if known else "") + " |")
    both = sum(right[architecture] == 2 for architecture in exporters)
    print(f"\n{len(exporters)} architectures: {both} agree with both exporters, {sum(map(bool, right.values()))} with one at least.")


main()
