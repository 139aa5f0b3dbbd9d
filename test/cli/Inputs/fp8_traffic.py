"""Compares what a device sends in a step of fp8 with one of bf16: FOLDER/{bf16,fp8}-{zero3,megatron-sp}.json."""
import collections
import json
import sys


def sent(name):
    bytes_of = collections.Counter()
    for entry in json.load(open(f"{sys.argv[1]}/{name}.json"))["devices"][0]["sent"]:
        if entry["fragment"] == "final":
            bytes_of[entry["op"]] += entry["bytes"]
    return bytes_of


low, eight = sent("bf16-zero3"), sent("fp8-zero3")
assert low["all_gather"] == eight["all_gather"] > 0 and low["reduce_scatter"] == eight["reduce_scatter"] > 0, (low, eight)
assert 0 < eight["all_reduce"] - low["all_reduce"] <= 1024, (low, eight)  # an amax of each input and gradient
low, eight = sent("bf16-megatron-sp"), sent("fp8-megatron-sp")
assert 0 < 2 * eight["all_gather"] <= 1.01 * low["all_gather"], (low, eight)
