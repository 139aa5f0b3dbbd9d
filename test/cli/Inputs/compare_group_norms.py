"""compare_group_norms.py GOLDEN METRICS.jsonl: are the first step's norms of the groups in grad-norms.test those of PyTorch's
gradients, which GOLDEN/golden.json has by parameter?"""
import fnmatch
import json
import math
import pathlib
import sys

gradients = json.loads(pathlib.Path(sys.argv[1], "golden.json").read_text())["grads_step0_f64"]
first = json.loads(open(sys.argv[2]).readline())
groups = {"attention": ["*attn*"], "biases": ["*.bias"], "tables": ["model.lm_head.weight", "embedding_1"]}
for name, globs in groups.items():
    norms = [one["norm"] for key, one in gradients.items() if any(fnmatch.fnmatchcase(key, glob) for glob in globs)]
    assert norms
    expected, found = math.sqrt(sum(norm * norm for norm in norms)), first[f"grad_norm.{name}"]
    assert abs(found - expected) <= 1e-3 * expected, (name, found, expected)
print(f"{len(groups)} groups as in PyTorch")
