"""The zoo: name -> Case."""
import dataclasses
import os
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def all_cases():
    import encoders
    import lm
    import plain
    import vision

    cases = plain.CASES + lm.CASES + encoders.CASES + vision.CASES
    assert len({c.name for c in cases}) == len(cases)
    fresh = [dataclasses.replace(c, name=c.name + "@fresh", perturb=False) for c in cases if c.perturb]  # as PyTorch initializes
    fresh += [dataclasses.replace(c, name=c.name + "-unoptimized", optimize=False) for c in fresh if c.optimize]
    fixed = [dataclasses.replace(c, name=c.name + "@fixed", fixed=True) for c in cases]  # exported for a batch of 8 alone
    return {c.name: c for c in cases + fresh + fixed}
