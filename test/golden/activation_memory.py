#!/usr/bin/env python3
"""Activations fall as 1/cp, and with recomputation: bytes of one device that grow with the batch, from plans' reports.

    activation_memory.py --build BUILD

Parameters, their gradients and communication buffers do not depend on the batch, so the difference between two batch
sizes is activations alone. Both are large enough that no part of an activation is small (64 KiB: kept without a second
thought). Beside the part of 1/cp there are the inputs (8 bytes a token), whole on every device, and on
a ring the blocks of keys and values of two turns; unsplit attention keeps its probabilities, a ring does not. Nothing
keeps less than full recomputation would.

With full recomputation the three blocks of mingpt_nano keep what enters them, and one block at a time what it makes: a
third and a bit of what they keep without.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import golden


def activation_bytes(build, model, scratch, cp, batch, flags):
    plan, cleave = scratch / "x.plan", build / "bin/cleave"
    golden.call([cleave, "compile", model / "model.onnx", "--recipe", model / "recipe.yaml", "--cluster", f"cpu:{cp}",
                 "--mesh", f"cp={cp}", "--microbatches", "1", "--set",
                 "dims={batch: %d}" % batch, "-o", plan] + flags)
    report = json.loads(golden.call([cleave, "report", plan, "--format", "json"]))
    return report["predicted"]["memory_breakdown"]["activations"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory(prefix="cleave-activations-") as folder:
        scratch = pathlib.Path(folder)
        model = golden.prepare("gpt2_tiny", scratch)
        def a_sample(cp, flags):
            return (activation_bytes(build, model, scratch, cp, 256, flags) -
                    activation_bytes(build, model, scratch, cp, 128, flags)) / 128

        least = a_sample(1, ["--recompute", "full"])
        for kind in ("ring", "ulysses"):
            flags = ["--like", kind, "--recompute", "none"]
            whole = a_sample(1, flags)
            for cp in (2, 4):
                part = a_sample(cp, flags)
                print(f"{kind}: cp={cp} keeps {part:,.0f} bytes a sample, cp=1 {whole:,.0f}: {part * cp / whole:.3f} of 1/{cp}")
                if not least / cp < part < 1.05 * whole / cp:
                    return 1
        # bert_tiny's two layers are exported in other orders: it is cut where little crosses.
        for name, low, high in (("mingpt_nano", 1 / 3, 0.45), ("bert_tiny", 0.2, 0.5)):
            model = golden.prepare(name, scratch)
            ratio = a_sample(1, ["--recompute", "full"]) / a_sample(1, ["--recompute", "none"])
            print(f"full recomputation of {name} keeps {ratio:.3f} of what is kept without")
            if not low < ratio < high:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
