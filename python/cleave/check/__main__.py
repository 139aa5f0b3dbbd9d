"""python -m cleave.check MODEL_OR_PLAN --module FILE.py:FACTORY: compares a file with the module that it was exported from."""
import argparse
import dataclasses
import json
import sys

import numpy as np

from cleave._tool import run_program
from cleave.check import ImportMismatch, check_import
from cleave.export.loading import module_and_example


def main():
    parser = argparse.ArgumentParser(prog="cleave check", description=__doc__)
    parser.add_argument("model", help="an .onnx file, or a plan")
    parser.add_argument("--module", required=True,
                        help="FILE.py:NAME of a function that returns (module, example), or of a module")
    parser.add_argument("--example", help="FILE.py:NAME of the example inputs, where the factory returns a module alone")
    parser.add_argument("--recipe", help="how it trains; a plan has its own")
    parser.add_argument("--data", help="an .npz with a batch: an array for each input, and the labels; without it random numbers")
    parser.add_argument("--accept", action="append", default=[], help="a glob of tensors whose differences are known")
    parser.add_argument("--json", action="store_true", help="for programs")
    args = parser.parse_args()
    module, example = module_and_example(args.module, args.example)
    batch = dict(np.load(args.data)) if args.data else None
    try:
        found = check_import(module, args.model, batch, args.recipe, example=example, accept=args.accept)
    except ImportMismatch as mismatch:
        if not args.json:
            raise
        print(json.dumps({"agrees": False, "differences": mismatch.differences}, indent=1))
        sys.exit(mismatch.status)
    print(json.dumps({"agrees": True, **dataclasses.asdict(found)}, indent=1) if args.json else f"import: {found}")


if __name__ == "__main__":
    run_program(main)
