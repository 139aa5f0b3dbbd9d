"""halved_gathers.py FULL LOW: bytes that devices sent in fp32 and in bf16, counted by `cleave run --counters`. Of what is
gathered biases alone stay fp32, so the second is a little more than half of the first; what is reduced is the same."""
import json
import sys


def sent(path, op):
    devices = json.load(open(path))["devices"]
    return sum(one["bytes"] for device in devices for one in device["sent"] if one["op"] == op)


full, low = sys.argv[1:]
ratio = sent(low, "all_gather") / sent(full, "all_gather")
assert 0.5 < ratio < 0.55, ratio
assert sent(low, "reduce_scatter") == sent(full, "reduce_scatter") > 0
