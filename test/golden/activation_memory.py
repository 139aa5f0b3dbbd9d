#!/usr/bin/env python3
"""Activations fall as 1/cp: bytes of one device that grow with the batch, from the compiled plans' reports.

    activation_memory.py --build BUILD

Parameters, their gradients and communication buffers do not depend on the batch, so the difference between two batch
sizes is activations alone. Beside the part of 1/cp there are the inputs (8 bytes a token), whole on every device, and on
a ring the blocks of keys and values of two turns; unsplit attention keeps its probabilities, a ring does not.
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
                 "--mesh", f"cp={cp}", "--microbatches", "1", "--recompute", "none", "--set",
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
        for kind in ("ring", "ulysses"):
            sample = {cp: (activation_bytes(build, model, scratch, cp, 32, ["--like", kind]) -
                           activation_bytes(build, model, scratch, cp, 16, ["--like", kind])) / 16 for cp in (1, 2, 4)}
            for cp in (2, 4):
                ratio = sample[cp] * cp / sample[1]
                print(f"{kind}: cp={cp} keeps {sample[cp]:,.0f} bytes a sample, cp=1 {sample[1]:,.0f}: {ratio:.3f} of 1/{cp}")
                if not 0.85 < ratio < 1.05:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
