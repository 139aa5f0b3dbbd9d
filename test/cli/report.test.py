#!/usr/bin/env python3
"""Do a report's text and HTML say what its JSON says, do its parts add up, and is what it lists what runs?

    report.test.py REPORT.json REPORT.txt REPORT.html [COUNTERS.json]

Makes what the cells of all tables should say from the JSON alone, and reads those of the page with an HTML parser. With
what `cleave run --counters` wrote: the bytes that devices sent in a step are those of the collectives that are listed.
"""
import collections
import html.parser
import json
import re
import sys


def scaled(value, base, units):
    for unit in units:
        if abs(value) < base * 0.9995 or unit == units[-1]:
            break
        value /= base
    digits = 0 if abs(value) >= 99.95 or value == 0 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def size(value):
    return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"])


def time(value):
    return scaled(value, 1e12, ["s"]) if abs(value) >= 1 else scaled(value * 1e6, 1000, ["us", "ms"])


def mesh(sizes):
    return ",".join(f"{name}={size}" for name, size in sizes.items())


class Tables(html.parser.HTMLParser):
    """Every table of a page as rows of cells; all text beside them in `text`."""

    def __init__(self):
        super().__init__()
        self.tables, self.text, self.cell = [], "", None

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self.cell)
            self.cell = None

    def handle_data(self, data):
        if self.cell is None:
            self.text += data + " "
        else:
            self.cell += data


def of_text(lines, heads):
    """The rows below a line of these heads, up to the first that is no part of the table."""
    pattern = re.compile(r"^ +" + r" +".join(re.escape(head) for head in heads if head) + "$")
    for at, line in enumerate(lines):
        if pattern.match(line):
            break
    else:
        raise AssertionError(f"the text has no table {heads}")
    rows = []
    for line in lines[at + 1:]:
        if not line.startswith("  ") or re.match(r"  and \d+ (more|smaller)", line):
            break
        rows.append(re.split(r" {1,}", line.strip()))
    return rows


def squeezed(rows):
    """Cells as the words of the text's lines: how many blanks stand between columns says nothing."""
    return [re.split(r" {1,}", " ".join(cell for cell in row if cell).strip()) for row in rows]


def sums(parts, key):
    total = collections.OrderedDict()
    for part in parts:
        row = total.setdefault(part[key], [0, 0.0, 0.0, 0.0])
        for i, name in enumerate(("count", "compute_s", "exposed_s", "beside_compute_s")):
            row[i] += part[name]
    return sorted(total.items(), key=lambda item: (-(item[1][1] + item[1][2]), item[0]))


def moved(row, shown):
    """The tensors of a row of collectives: so many, and how many others."""
    names = [one["shown"] for one in row["tensors"][:shown]]
    more = len(row["tensors"]) - len(names) + row["tensors_more"]
    return ", ".join(names) + (f" and {more} more" if more else "")


def collective_lines(table, report):
    """The page's table of collectives as the text has it: what moves in a line below the row."""
    lines = [table[0][:-1]]
    for cells, row in zip(table[1:], report["collectives"]):
        lines.append(cells[:-1])
        if row["tensors"]:
            lines.append(["of " + moved(row, 4)])
    return lines


def expected_tables(report):
    step = report["predicted"]["step_time_s"]
    tables = {"collectives": [["collective", "over", "count", "bytes", "alone", "beside compute", "why", "tensors"]] + [
        [row["op"], ",".join(row["axes"]), str(row["count"]), size(row["bytes"]), time(row["seconds"]),
         "yes" if row["hidden"] else "no", row["shown"], moved(row, 8)] for row in report["collectives"]]}
    for key, head in (("part", "layer"), ("op", "operation")):
        tables[head] = [[head, "count", "compute", "share", "exposed", "beside compute"]] + [
            [name, str(row[0]), time(row[1]), f"{100 * row[1] / step:.0f} %", time(row[2]), time(row[3])]
            for name, row in sums(report["time"], key) if sum(row[1:]) > 0]
    tables["sensitivity"] = [["twice the", "step time", "less"]] + [
        [row["twice"], time(row["step_time_s"]), f"{100 * (1 - row['step_time_s'] / step):.1f} %"]
        for row in report["sensitivity"] if 1 - row["step_time_s"] / step >= 0.0005]
    tables["alternatives"] = [["name", "mesh", "schedule", "zero", "micro", "recompute", "step time", "memory", "why not"]] + [
        [row["name"], mesh(row["mesh"]), row["schedule"], str(row["zero"]), str(row["microbatches"]), row["recompute"],
         time(row["step_time_s"]), size(row["memory_bytes_per_device"]),
         (row["why_not"] or "as fast") if row["fits"] else "does not fit"] for row in report["alternatives"] if row["mesh"]]
    if len(report["stages"]) > 1:
        again = lambda row: ", ".join(f"{row[key]} {what}" for key, what in (
            ("recomputed_blocks", "full"), ("selective_blocks", "selective"), ("activation_blocks", "activations")) if row[key]) or "none"
        tables["stages"] = [["stage", "rank", "devices", "blocks", "recomputed", "parameters", "forward", "backward", "memory"]] + [
            [str(s), str(row["rank"]), str(row["devices"]), str(row["blocks"]), again(row),
             f"{row['parameters'] / 1e6:.3g} M", time(row["forward_s"]), time(row["backward_s"]),
             size(row["memory_bytes_per_device"])] for s, row in enumerate(report["stages"])]
    return tables


def near(a, b, of, what):
    assert abs(a - b) <= 1e-6 * max(abs(of), 1e-12), f"{what}: {a} and {b}"


def check_sums(report):
    """Parts that are said beside a whole are all of it."""
    predicted = report["predicted"]
    step = predicted["step_time_s"]
    near(predicted["compute_s"] + predicted["exposed_communication_s"] + predicted["bubble_s"], step, step, "the step's parts")
    for row in report["collectives"]:
        moved_bytes = sum(one["bytes"] for one in row["tensors"])
        assert row["tensors_more"] or not row["tensors"] or abs(moved_bytes - row["bytes"]) <= 1e-6 * row["bytes"], row
    near(sum(row["compute_s"] for row in report["time"]), predicted["compute_s"], step, "compute by part")
    near(sum(row["beside_compute_s"] for row in report["time"]), predicted["hidden_communication_s"], step, "hidden communication by part")
    if report["offload"] == "none":
        near(sum(row["exposed_s"] for row in report["time"]), predicted["exposed_communication_s"], step, "exposed communication by part")
    if not report["collectives_are_planned"]:
        alone = sum(row["seconds"] for row in report["collectives"] if "to the next stage" not in row["why"] and "to the stage before" not in row["why"])
        communication = predicted["hidden_communication_s"] + predicted["exposed_communication_s"]
        near(communication - predicted["contention_s"] - predicted["exposed_host_s"], alone, step, "hidden and exposed communication")
    kinds = ("parameters", "gradients", "optimizer", "activations", "workspace")
    memory = predicted["memory_bytes_per_device"]
    near(sum(predicted["memory_breakdown"][kind] for kind in kinds), memory, memory, "the kinds of memory")
    peak = max(sum(point[kind] for kind in kinds) for point in report["memory_over_time"])
    first, last = report["memory_over_time"][0], report["memory_over_time"][-1]
    parts = [point["part"] for point in report["memory_over_time"]]
    assert set(parts) == {"forward", "backward", "update"} and parts.index("update") == len(parts) - 1, parts
    assert last["activations"] == 0 and last["gradients"] == max(point["gradients"] for point in report["memory_over_time"]), last
    if predicted["memory_is_planned"]:  # sums over the microbatches are tensors of the plan; else gradients come and go
        assert (predicted["memory_breakdown"]["gradients"] > 0) == (first["gradients"] > 0), first
    estimated = predicted["estimated_memory_bytes_per_device"]
    assert peak <= estimated * (1 + 1e-9), f"memory over time reaches {peak}, estimated are {estimated}"
    if len(report["stages"]) == 1 and report["microbatches"] > 1:
        near(peak, estimated, estimated, "the fullest moment and the estimate")
    elif len(report["stages"]) == 1:  # but for the gradients that come after it, and their buckets
        for kind in ("activations", "workspace") if not predicted["memory_is_planned"] else ():
            most = max(point[kind] for point in report["memory_over_time"])
            near(most, predicted["memory_breakdown"][kind], estimated, f"the most {kind} over time and the estimate")
        # The others have the room of activations by the time they are made.
        assert predicted["memory_breakdown"]["gradients"] <= last["gradients"], last
        assert peak >= estimated - 2 * last["gradients"] - last["workspace"], f"memory over time reaches {peak} of {estimated}"
    else:
        assert max(row["memory_bytes_per_device"] for row in report["stages"]) == memory, "no stage needs the most"


# A member's share of the bytes that a group of n has together: what it sends.
SENT = {"all_reduce": lambda n: 2 * (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n, "all_gather": lambda n: (n - 1) / n,
        "all_to_all": lambda n: (n - 1) / n**2, "shift": lambda n: 1, "send": lambda n: 1}


def check_counters(report, counters):
    counted, listed = collections.Counter(), collections.Counter()
    for device in counters["devices"]:
        for row in device["sent"]:
            if not row["fragment"].startswith("evaluate"):
                counted[row["op"], ",".join(sorted(row["axes"]))] += row["bytes"] / report["devices"]
    for row in report["collectives"]:
        members = 1
        for axis in row["axes"]:
            members *= report["mesh"][axis]
        axes = "" if row["op"] == "send" else ",".join(sorted(row["axes"]))
        listed[row["op"], axes] += row["bytes"] * SENT[row["op"]](members)
    for key in counted | listed:
        assert abs(counted[key] - listed[key]) < 1, f"{key}: {counted[key]} bytes were sent, {listed[key]} are listed"


def main():
    report = json.load(open(sys.argv[1]))
    text = open(sys.argv[2]).read()
    page = Tables()
    page.feed(open(sys.argv[3]).read())
    predicted, breakdown = report["predicted"], report["predicted"]["memory_breakdown"]
    for name, table in expected_tables(report).items():
        if len(table) == 1:
            continue
        assert table in page.tables, f"{name} of the page are not those of the JSON:\n{table}\n" + "\n".join(
            str(other) for other in page.tables if other and other[0] == table[0])
        if name == "collectives":
            table = collective_lines(table, report)
        shown = of_text(text.split("\n"), table[0])
        most = {"layer": 8, "operation": 8, "collectives": 16, "stages": 16}.get(name, len(table))
        rows = squeezed(table[1:])
        assert shown[:most] == rows[:most], f"{name} of the text are not those of the JSON:\n{rows[:most]}\n{shown[:most]}"
    for kind in ("parameters", "gradients", "optimizer", "activations", "workspace"):
        assert breakdown[kind] == 0 or re.search(rf"^ +{kind} +{re.escape(size(breakdown[kind]))}(?: |$)", text, re.M), f"{kind} in the text"
        assert breakdown[kind] == 0 or f"{kind} {size(breakdown[kind])}" in page.text, f"{kind} on the page"
    numbers = {"step_time_s": (time, r"^step time  {} predicted", r"Step time: {} "),
               "compute_s": (time, r"predicted: compute {}(?:[,;]|$)", r"compute {} "),
               "exposed_communication_s": (time, r"exposed communication {}(?:[,;]|$)", r"exposed communication {} "),
               "bubble_s": (time, r"bubble {}(?:[,;]|$)", r"bubble {} "),
               "hidden_communication_s": (time, r"; {} of communication hidden", r"; {} of communication is hidden"),
               "memory_bytes_per_device": (size, r"^memory: {} a device", r"Memory: {} of")}
    for key, (form, in_text, on_page) in numbers.items():
        said = re.escape(form(predicted[key]))
        assert predicted[key] == 0 or re.search(in_text.format(said), text, re.M), f"{key} {said} in the text"
        assert predicted[key] == 0 or re.search(on_page.format(said), page.text), f"{key} {said} on the page"
    check_sums(report)
    if len(sys.argv) > 4:
        check_counters(report, json.load(open(sys.argv[4])))
    print("equal:", report["model"], mesh(report["mesh"]))


if __name__ == "__main__":
    main()
