"""edit_npz.py IN.npz OUT.npz STATEMENT: the arrays `f` by name, after a statement of Python on them (np: numpy)."""
import sys

import numpy as np

f = dict(np.load(sys.argv[1]))
exec(sys.argv[3])
np.savez(sys.argv[2], **{name: np.ascontiguousarray(value) for name, value in f.items()})
