"""random_samples.py FILE.npz SEED COUNT: so many samples of 16 normal numbers, `x`, with `labels` of zeros."""
import sys

import numpy as np

seed, count = map(int, sys.argv[2:])
np.savez(sys.argv[1], x=np.random.default_rng(seed).standard_normal((count, 16), "f"), labels=np.zeros((count, 1), "f"))
