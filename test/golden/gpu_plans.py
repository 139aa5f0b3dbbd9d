#!/usr/bin/env python3
"""Every golden model as a plan for GPUs: compiled for A100s and H100s, its kernels assembled by ptxas, checked for races.

    gpu_plans.py --build BUILD [--models a,b]

A plan for two nodes of eight H100s must pass `cleave verify --static`, which also takes a device of every program through
a step on the null driver. Those for a single A100, in fp32 and bf16, take a step on the emulated grid, which ends where two
threads of a block touch a word of shared memory with no barrier between them. ptxas says how many registers each kernel
needs, and whether it spills. golden.py --gpu compares numbers.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import golden  # noqa: E402

PLANS = [("h100-80g:8x2", "fp32"), ("a100-80g:1", "fp32"), ("a100-80g:1", "bf16")]
MOST_REGISTERS, MOST_SPILLED = 144, 32  # of a thread: numbers, bytes
REGISTERS = 65536  # of a multiprocessor: a block that needs more does not start


class Ptxas:
    """ptxas that also tells what each kernel needs."""

    def __init__(self, cleave, folder):
        self.log = folder / "ptxas.log"
        shown = subprocess.run([cleave, "--version"], capture_output=True, text=True, check=True).stdout
        real = pathlib.Path(re.search(r"^ptxas +(.+)$", shown, re.M)[1]).resolve()
        script = folder / "ptxas" / "bin" / "ptxas"
        script.parent.mkdir(parents=True)
        (folder / "ptxas" / "nvvm").symlink_to(real.parents[1] / "nvvm")  # libdevice
        script.write_text(f"""#!/bin/sh
for last in "$@"; do case "$last" in *.ptx) grep -E '^\\.(visible .entry|maxntid)' "$last" >> {self.log};; esac; done
exec {real} -v "$@" 2>> {self.log}
""")
        script.chmod(0o755)
        os.environ["CLEAVE_PTXAS"] = str(script)

    def kernels(self):
        """name -> (registers, bytes stored and read again for want of them, threads of a block) since the last call."""
        text = self.log.read_text()
        self.log.unlink()
        needs = re.findall(r"entry function '(\w+)'.*\n.*\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads\n.*Used (\d+) registers",
                           text)
        threads = dict(re.findall(r"\.entry (\w+)\(\n\.maxntid (\d+),", text))
        return {name: (int(registers), int(stored) + int(loaded), int(threads[name])) for name, stored, loaded, registers in needs}


def check_needs(kernels, told):
    if len(kernels) != int(re.search(r"^(\d+) GPU kernels", told, re.M)[1]):
        raise golden.Failure(f"ptxas told of {len(kernels)} kernels: {told}")
    for name, (registers, spilled, threads) in kernels.items():
        if registers > MOST_REGISTERS or spilled > MOST_SPILLED:
            raise golden.Failure(f"{name} needs {registers} registers and spills {spilled} bytes")
        if -(-registers // 8) * 8 * threads > REGISTERS:
            raise golden.Failure(f"a block of {name} needs {registers} registers for each of {threads} threads")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="")
    args = parser.parse_args()
    models = args.models.split(",") if args.models else sorted(p.parent.name for p in golden.DATA.glob("*/train.json"))
    cleave = args.build / "bin" / "cleave"
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="cleave-gpu-plans-") as scratch:
        ptxas = Ptxas(cleave, pathlib.Path(scratch))
        for model in models:
            folder = golden.prepare(model, pathlib.Path(scratch))
            for cluster, precision in PLANS:
                start, plan = time.monotonic(), folder / "gpu.plan"
                try:
                    is_one = cluster.endswith(":1")
                    told = golden.call([cleave, "compile", folder / "model.onnx", "--recipe", folder / "recipe.yaml",
                                        "--cluster", cluster, "--set", f"precision={precision}", "-o", plan,
                                        *(["--emulate"] if is_one else [])])
                    if "assembled by ptxas" not in told:
                        raise golden.Failure(f"the kernels were not assembled: {told}")
                    check_needs(ptxas.kernels(), told)
                    if is_one:
                        golden.call([cleave, "run", plan, "--steps", "1"], env=golden.environment_of("gpu", args.build))
                    else:
                        golden.call([cleave, "verify", plan, "--static"])
                    print(f"PASS gpu plan {model} {cluster} {precision}: {told.splitlines()[-1]} ({time.monotonic() - start:.1f} s)",
                          flush=True)
                    passed += 1
                except golden.Failure as failure:
                    print(f"FAIL gpu plan {model} {cluster} {precision}: {failure}", flush=True)
                    failed += 1
    print(f"gpu plans: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
