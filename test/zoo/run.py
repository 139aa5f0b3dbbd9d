#!/usr/bin/env python3
"""run.py [CASE.EXPORTER...] [--splits=one,zero3,...] [--out=results.jsonl]: compiles, runs and compares; then loads the weights back.

Verdicts: equal, doubt (the file does not tell all; compile names what), refused (another message), WRONG. CLEAVE is the binary.
Losses agree to 1e-4, gradient norms to 1e-3, outputs of the original module with the exported weights to 1e-5: a small tensor that
does not train shows in the outputs alone.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent / "cases"
CLEAVE = os.path.abspath(os.environ.get("CLEAVE", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin" / "cleave"))
SPLITS = {
    "one": (1, []),
    "zero3": (4, ["--like", "zero3"]),
    "ddp": (4, ["--like", "ddp"]),
    "tp2": (2, ["--mesh", "tp=2"]),
    "pp2": (2, ["--mesh", "pp=2", "--schedule", "1f1b", "--microbatches", "2"]),
}
DOUBTS = "the file does not tell all that the numbers depend on"


def sh(command, folder, limit=180):
    try:
        p = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return p.returncode, p.stderr.strip()
    except subprocess.TimeoutExpired:
        return 124, "TIMEOUT"


def relative(got, want):
    got, want = np.asarray(got, float), np.asarray(want, float)
    if got.shape != want.shape:
        return float("inf")
    e = np.abs(got - want) / np.maximum(np.abs(want), 1e-12)
    return float("inf") if np.isnan(e).any() else float(e.max())


def split(case, name, work):
    """(verdict, what it says, notes)"""
    folder = ROOT / case
    expected = json.loads((folder / "expected.json").read_text())
    devices, flags = SPLITS[name]
    if name == "pp2" and expected["coupled"]:
        flags = ["--mesh", "pp=2", "--microbatches", "1"]
    plan = work / f"{name}.plan"
    rc, err = sh([CLEAVE, "compile", str(folder / "model.onnx"), "--recipe", str(folder / "recipe.yaml"), "--cluster", f"cpu:{devices}",
                  "--set", f"data.path={folder / 'data.npz'}", *flags, "-o", str(plan)], work)
    notes = [line for line in err.splitlines() if "warning" in line or "note" in line]
    if rc:
        verdict = "doubt" if DOUBTS in err else "refused" if rc in (1, 2, 3) else f"CRASH {rc}"
        return verdict, err[err.find("error: "):][:1200], notes
    metrics = work / f"{name}.jsonl"
    more = ["--snapshot", str(work / "snapshot")] if name == "one" else []
    rc, err = sh([CLEAVE, "run", str(plan), "--steps", str(expected["steps"]), "--metrics", str(metrics), "--quiet", "--threads", "1", *more], work)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    rows = [r for r in rows if "loss" in r]
    if rc:
        return f"RUN {rc}", err[-1200:], notes
    loss, norm = [r["loss"] for r in rows], [r["grad_norm"] for r in rows]
    e, n = relative(loss, expected["loss"]), relative(norm, expected["grad_norm"])
    text = f"loss {e:.0e} norm {n:.0e}"
    if e <= 1e-4 and n <= 1e-3:
        return "equal", text, notes
    return "WRONG", f"{text}\n  loss {loss}\n  want {expected['loss']}\n  norm {norm}\n  want {expected['grad_norm']}", notes


def home(case, work):
    """The trained weights in the original module: by the exported file alone, else with the original checkpoint beside it."""
    import torch
    from safetensors.torch import load_file, save_file

    import models
    from case import BATCH, module_of

    torch.set_num_threads(1)
    if not CASES:
        CASES.update(models.all_cases())
    folder, file, base = ROOT / case, work / "x.safetensors", work / "base.safetensors"
    module = module_of(CASES[case.rsplit(".", 1)[0]])
    save_file({name: tensor.clone().contiguous() for name, tensor in module.state_dict().items()}, str(base))
    for more in ([], ["--base", str(base)]):
        rc, err = sh([CLEAVE, "export", str(work / "snapshot"), "-o", str(file), "--model", str(folder / "model.onnx"), *more], work)
        if rc:
            said = f"RC {rc}", err[-600:]
            continue
        given = load_file(str(file))
        try:
            module.load_state_dict(given, strict=True)
        except RuntimeError as e:
            want = set(module.state_dict())
            said = "KEYS", f"{len(want - set(given))} missing {sorted(want - set(given))[:4]}; {len(set(given) - want)} unexpected " \
                f"{sorted(set(given) - want)[:4]}; " + "; ".join(line.strip()[:160] for line in str(e).splitlines() if "size mismatch" in line)[:400]
            continue
        data = np.load(folder / "data.npz")
        inputs = [torch.from_numpy(data[k][:BATCH]) for k in data.files if k != "labels"]
        expected = json.loads((folder / "expected.json").read_text())
        module = module.eval().to(torch.float64 if expected.get("float64", True) else torch.float32)
        with torch.no_grad():
            out = module(*[i.to(next(module.parameters()).dtype) if i.is_floating_point() else i for i in inputs]).numpy()
        want = np.load(folder / "probe.npz")["output"]
        e = float(np.abs(out - want).max() / max(1.0, np.abs(want).max()))
        return ("equal" if e <= 1e-5 else "FAR") + (" (base)" if more else ""), f"outputs {e:.0e}"
    return said


CASES = {}


def main():
    names, splits, out = [], ["one", "zero3", "tp2", "pp2"], None
    for a in sys.argv[1:]:
        if a.startswith("--splits="):
            splits = a.split("=", 1)[1].split(",")
        elif a.startswith("--out="):
            out = open(a.split("=", 1)[1], "a")
        else:
            names.append(a)
    if not names:
        names = sorted(p.parent.name for p in ROOT.glob("*/expected.json"))
    for case in names:
        start, row = time.time(), {"case": case}
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            for s in splits:
                row[s] = split(case, s, work)
                if s == "one" and row[s][0] in ("doubt", "refused") or row[s][0].startswith("CRASH"):
                    break
            if (work / "snapshot").exists():
                try:
                    row["export"] = home(case, work)
                except Exception as e:
                    row["export"] = ("ERROR", repr(e)[:300])
        known = json.loads((ROOT / case / "expected.json").read_text()).get("known")
        print(f"{case:34}" + " ".join(f"{s}:{row[s][0]}" for s in [*splits, "export"] if s in row) + f" [{time.time() - start:.0f}s]"
              + (f" KNOWN: {known}" if known else ""), flush=True)
        told = set()
        for s in [*splits, "export"]:
            if s in row and row[s][0] != "equal" and row[s][1] not in told:
                told.add(row[s][1])
                print("    " + s + ": " + row[s][1][:700].replace("\n", "\n    "), flush=True)
        if out:
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
