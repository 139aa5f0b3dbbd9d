"""Small nets, from both exports: ten steps beside PyTorch, and the weights back into the module."""
import sys
import warnings

import nets
from beside_torch import beside_torch, show


def main(names):
    warnings.filterwarnings("ignore")
    failed = [name for name in names or nets.NETS if not show(name, beside_torch(*nets.build(name)))]
    print(f"nets: {'as expected' if not failed else 'differ: ' + ', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
