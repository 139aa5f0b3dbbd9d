"""Known architectures, from both exports: ten steps beside PyTorch, and the weights back into the module.

    python models.py [NAME...] [--cluster cpu:2]       prints a row a model; status 1 if one is not as it must be
"""
import sys
import warnings

import architectures
from beside_torch import ADAMW, SGD, beside_torch, show


def main(arguments):
    warnings.filterwarnings("ignore")
    cluster = arguments.pop(arguments.index("--cluster") + 1) if "--cluster" in arguments else "cpu:1"
    names = [name for name in arguments if name != "--cluster"] or list(architectures.MODELS)
    failed = []
    for name in names:
        if name not in architectures.available():
            print(f"{name:22} skipped: {architectures.MODELS[name][0]} is not installed", flush=True)
            continue
        optimizer = SGD if name == "resnet18" else ADAMW
        row = beside_torch(*architectures.build(name), cluster=cluster, optimizer=optimizer)
        failed += [] if show(name, row) else [name]
    print(f"models: {'as expected' if not failed else 'differ: ' + ', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
