#!/usr/bin/env python3
"""How long `cleave estimate` takes, and whether its choice beats the published one.

    ./dev bench search              limits: whole commands, wall and processor time, peak memory, optimality gap,
                                    what each move gained (--search-moves); growth with layers and with devices
    ./dev bench sc21                the models of Megatron-LM (SC21, table 1): the published configuration priced, the
                                    split chosen under the same constraints, and where they differ

Both write their table into docs/results/search.md. The models are written with Python's numpy and onnx: by this Python, or
the one that CLEAVE_TORCH_PYTHON names. Wall time counts the other work of the machine; compare processor time then.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
# name, layers, hidden, heads, global batch, precision, cluster, seconds allowed
LIMITS = [("GPT-39B", 48, 8192, 64, 1536, "fp16", "v100-32g:8x8", 10),
          ("GPT-175B", 96, 12288, 96, 1024, "fp16", "a100-80g:8x128", 20),
          ("GPT-1T", 128, 25600, 160, 3072, "bf16", "h100-80g:8x2048", 60)]
LAYERS, DEVICES = (24, 48, 96, 192), (8, 16, 32, 64, 128)
# Narayanan et al. 2021, table 1: billions, layers, hidden, heads, tp, pp, model chunks, dp, microbatch, global batch
SC21 = [(1.7, 24, 2304, 24, 1, 1, 1, 32, 16, 512), (3.6, 30, 3072, 32, 2, 1, 1, 32, 16, 512),
        (7.5, 36, 4096, 32, 4, 1, 1, 32, 16, 512), (18.4, 40, 6144, 48, 8, 1, 1, 32, 8, 1024),
        (39.1, 48, 8192, 64, 8, 2, 1, 32, 4, 1536), (76.1, 60, 10240, 80, 8, 4, 1, 32, 2, 1792),
        (145.6, 80, 12288, 96, 8, 8, 2, 24, 2, 2304), (310.1, 96, 16384, 128, 8, 16, 2, 15, 1, 2160),
        (529.6, 105, 20480, 128, 8, 35, 3, 9, 1, 2520), (1008.0, 128, 25600, 160, 8, 64, 2, 6, 1, 3072)]


def python_with_onnx():
    for python in (os.environ.get("CLEAVE_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", "import numpy, onnx"], capture_output=True).returncode == 0:
            return python
    sys.exit("no Python here has numpy and onnx, which write the models; name one in CLEAVE_TORCH_PYTHON")


def model(scratch, layers, hidden, heads):
    path = scratch / f"gpt-{layers}-{hidden}.onnx"
    if not path.exists():
        subprocess.run([python_with_onnx(), ROOT / "models/gpt/make_gpt.py", "--layers", str(layers), "--hidden", str(hidden),
                        "--heads", str(heads), "--vocab", "51200", "--seq", "2048", "-o", path],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def estimate(build, scratch, path, batch, precision, cluster, *flags):
    """The report, wall seconds, processor seconds, peak MiB."""
    recipe = scratch / f"{batch}-{precision}.yaml"
    recipe.write_text(f"dims: {{batch: {batch}}}\nloss: {{kind: softmax_cross_entropy, labels: {{name: labels}}}}\n"
                      f"optimizer: {{kind: adamw, lr: 1.0e-4}}\nprecision: {precision}\n")
    out = scratch / "report.json"
    start = time.monotonic()
    child = subprocess.Popen([build / "bin/cleave", "estimate", path, "--recipe", recipe, "--cluster", cluster, "--json",
                              "-o", out, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        return None, text, 0, 0
    return json.loads(out.read_text()), time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def split(report):
    mesh = ",".join(f"{axis}={size}" for axis, size in report["mesh"].items())
    return (f"{mesh} zero {report['zero']} microbatches {report['microbatches']} recompute {report['recompute']}"
            + (f" {report['schedule']}" if report["schedule"] != "none" else ""))


def speed(build, scratch):
    """The rows of the table; printed as they come."""
    print(f"{'':22s} {'wall':>7s} {'processor':>9s} {'peak':>9s} {'gap':>7s}  split")
    table = ["| problem | processor time | peak | gap | split |", "|---|---|---|---|---|"]

    def row(title, arguments, allowed=None):
        report, wall, processor, peak = estimate(build, scratch, *arguments)
        if report is None:
            print(f"{title:22s} {wall.strip().splitlines()[0]}")
            return
        limit = "" if allowed is None else f"  (allowed {allowed} s: {'kept' if wall < allowed else 'MISSED'})"
        print(f"{title:22s} {wall:5.1f} s {processor:7.1f} s {peak:5.0f} MiB {100 * report['search']['gap']:5.2f} %  "
              f"{split(report)}{limit}", flush=True)
        table.append(f"| {title} | {processor:.1f} s | {peak:.0f} MiB | {100 * report['search']['gap']:.2f} % | {split(report)} |")
        gains = (f"{move['name']} {100 * move['gained_s'] / report['predicted']['step_time_s']:.2f} % in {move['seconds']:.1f} s"
                 + (f", bound {100 * move['raised_bound_s'] / report['predicted']['step_time_s']:.2f} % up"
                    if move["raised_bound_s"] > 0 else "") for move in report["search"]["moves"])
        print(f"{'':22s} moves gained: {'; '.join(gains)}", flush=True)

    for name, layers, hidden, heads, batch, precision, cluster, allowed in LIMITS:
        row(f"{name} {cluster}", (model(scratch, layers, hidden, heads), batch, precision, cluster), allowed)
    for layers in LAYERS:
        row(f"{layers} layers", (model(scratch, layers, 8192, 64), 1536, "fp16", "a100-80g:8x64"))
    for nodes in DEVICES:
        row(f"{8 * nodes} devices", (model(scratch, 48, 8192, 64), 1536, "fp16", f"a100-80g:8x{nodes}"))
    return table


def published(build, scratch):
    """How often the choice is slower than the published configuration, and the rows of the table."""
    slower, table = 0, ["| model | published | step | chosen | step | faster by |", "|---|---|---|---|---|---|"]
    for billions, layers, hidden, heads, tp, pp, chunks, dp, microbatch, batch in SC21:
        path, cluster = model(scratch, layers, hidden, heads), f"a100-80g:8x{tp * pp * dp // 8},software=megatron-2021"
        schedule = [] if pp == 1 else ["--schedule", "1f1b" if chunks == 1 else f"interleaved:{chunks}"]
        theirs = ["--like", "megatron-2021", "--mesh", f"pp={pp},dp={dp},tp={tp}", "--zero", "0", "--recompute", "full",
                  "--microbatches", str(batch // dp // microbatch), *schedule]
        reports = []
        for title, flags in (("published", theirs), ("chosen", ["--recompute", "full"])):
            report, text, _, _ = estimate(build, scratch, path, batch, "fp16", cluster, *flags)
            reports.append(report)
            if report is None:
                print(f"{billions:7.1f} B {title:9s} {text.strip().splitlines()[0][:150]}")
                continue
            p = report["predicted"]
            print(f"{billions:7.1f} B {title:9s} {p['step_time_s']:8.2f} s  compute {p['compute_s']:.2f}, exposed "
                  f"{p['exposed_communication_s']:.2f}, bubble {p['bubble_s']:.2f}; "
                  f"{p['memory_bytes_per_device'] / 2**30:.1f} GiB  {split(report)}", flush=True)
        if all(reports):
            gain = 1 - reports[1]["predicted"]["step_time_s"] / reports[0]["predicted"]["step_time_s"]
            slower += gain < -1e-9
            table.append(f"| {billions} B | " + "".join(f"{split(r)} | {r['predicted']['step_time_s']:.2f} s | " for r in reports)
                         + f"{100 * gain:.1f} % |")
            print(f"          the chosen split is {100 * gain:.1f} % faster" if gain >= 0 else
                  f"          the chosen split is {-100 * gain:.1f} % SLOWER")
    print(f"slower than the published configuration: {slower} of {len(SC21)}")
    return slower, table


def put(page, mark, table):
    """The table between its marks of the page, in place of the one there."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, rest = page.read_text().split(begin)
    page.write_text("\n".join([before + begin, *table, end]) + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("what", choices=["search", "sc21"])
    parser.add_argument("--write", type=pathlib.Path, help="the page whose table is replaced")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        slower, table = ((0, speed(args.build, pathlib.Path(scratch))) if args.what == "search"
                         else published(args.build, pathlib.Path(scratch)))
    if args.write:
        put(args.write, args.what, table)
    if slower:
        sys.exit(1)


if __name__ == "__main__":
    main()
