#!/usr/bin/env python3
"""same_report.py A B: are two reports of one search the same, but for its seconds, what is said of the model, the recipe and the command?"""
import json
import sys

reports = [json.load(open(path)) for path in sys.argv[1:]]
for report in reports:
    for measured in ("seconds", "moves"):
        report["search"].pop(measured)
    for own in ("notes", "import", "tensors", "command", "version", "recipe"):
        report.pop(own, None)
for key in reports[0] | reports[1]:
    if reports[0].get(key) != reports[1].get(key):
        sys.exit(f"{key}: {reports[0].get(key)} and {reports[1].get(key)}")
