"""python -m cleave.export FILE.py:FACTORY -o model.onnx: exports a torch module."""
import argparse
import sys
import warnings

from cleave._tool import CleaveError, run_program
from cleave.export import export
from cleave.export.loading import module_and_example


def main():
    parser = argparse.ArgumentParser(prog="python -m cleave.export", description=__doc__)
    parser.add_argument("factory", help="FILE.py:NAME of a function that returns (module, example), or of a module")
    parser.add_argument("-o", "--output", required=True, help="the .onnx file")
    parser.add_argument("--example", help="FILE.py:NAME of the example inputs, where the factory returns a module alone")
    parser.add_argument("--fixed-batch", action="store_true", help="the example's batch is the only one")
    parser.add_argument("--batch", type=int, help="the recipe's batch, for a forward that computes differently for some sizes")
    parser.add_argument("--without-weights", action="store_true", help="leave the numbers of the parameters out")
    parser.add_argument("--exporter", choices=["dynamo", "torchscript"], help="without it the one that works")
    parser.add_argument("--input-names", help="names of the inputs, with commas between")
    parser.add_argument("--output-names", help="names of the outputs, with commas between")
    args = parser.parse_args()
    names = {key: text and text.split(",") for key, text in (("input_names", args.input_names),
                                                             ("output_names", args.output_names))}
    warnings.showwarning = lambda message, *_: print(f"cleave: warning: {message}", file=sys.stderr)
    module, example = module_and_example(args.factory, args.example)
    if example is None:
        raise CleaveError(f"{args.factory} gives no example inputs: return (module, example), or name them with --example", 2)
    statement = export(module, example, args.output, dynamic_batch=not args.fixed_batch, exporter=args.exporter,
                       weights=not args.without_weights, batch=args.batch, **names)
    trains = sum(entry.get("requires_grad", False) and "tied_to" not in entry for entry in statement["tensors"])
    print(f"{args.output}: {trains} parameters train, by {statement['exporter']}")


if __name__ == "__main__":
    run_program(main)
