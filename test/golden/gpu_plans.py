#!/usr/bin/env python3
"""Every golden model as a plan for GPUs: compiled for A100s and H100s, its kernels assembled by ptxas, checked.

    gpu_plans.py --build BUILD [--models a,b]

A plan for two nodes of eight H100s must pass `cleave verify --static`, which also takes a device of every program through
a step on the null driver; one for a single A100 must assemble. golden.py --gpu compares numbers.
"""
import argparse
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import golden  # noqa: E402

CLUSTERS = ["h100-80g:8x2", "a100-80g:1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="")
    args = parser.parse_args()
    models = args.models.split(",") if args.models else sorted(p.parent.name for p in golden.DATA.glob("*/train.json"))
    cleave = args.build / "bin" / "cleave"
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="cleave-gpu-plans-") as scratch:
        for model in models:
            folder = golden.prepare(model, pathlib.Path(scratch))
            for cluster in CLUSTERS:
                start, plan = time.monotonic(), folder / "gpu.plan"
                try:
                    told = golden.call([cleave, "compile", folder / "model.onnx", "--recipe", folder / "recipe.yaml",
                                        "--cluster", cluster, "-o", plan])
                    if "assembled by ptxas" not in told:
                        raise golden.Failure(f"the kernels were not assembled: {told}")
                    golden.call([cleave, "verify", plan, "--static"])
                    print(f"PASS gpu plan {model} {cluster}: {told.splitlines()[-1]} ({time.monotonic() - start:.1f} s)",
                          flush=True)
                    passed += 1
                except golden.Failure as failure:
                    print(f"FAIL gpu plan {model} {cluster}: {failure}", flush=True)
                    failed += 1
    print(f"gpu plans: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
