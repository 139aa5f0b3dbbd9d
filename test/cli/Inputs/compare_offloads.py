"""Offloading takes memory from the device, changes no bit of the training, and the plan says what it takes.

    compare_offloads.py FOLDER none WAY... [--priced]

WAY.jsonl has the metrics of a run, WAY.json the report of its plan, WAY.estimate (--priced) that of its estimate.
"""
import json
import pathlib
import sys

folder, ways = pathlib.Path(sys.argv[1]), [way for way in sys.argv[2:] if way != "--priced"]
ran = [[json.loads(line) for line in open(folder / f"{way}.jsonl")] for way in ways]
said = [json.load(open(folder / f"{way}.json"))["predicted"] for way in ways]
took = [lines[-1]["peak_bytes_per_device"] for lines in ran]

most = {"activations": 0.5, "all": 0} if "--priced" in sys.argv else {"activations": 0.85, "all": 0.65}
for way, bytes in list(zip(ways, took))[1:]:
    assert bytes < most[way] * took[0], f"{way} takes {bytes}, without it {took[0]}"
for lines in ran[1:]:
    assert [line["loss"] for line in lines] == [line["loss"] for line in ran[0]], (ways, ran)
scratch = [taken - plan["memory_bytes_per_device"] for taken, plan in zip(took, said)]
assert len(set(scratch)) == 1, f"beside the plan a run takes {scratch}"
assert "--priced" in sys.argv or 0 <= scratch[0] < 2**17, scratch
for plan, lines in list(zip(said, ran))[1:]:
    assert plan["memory_breakdown"]["host"] == lines[-1]["host_bytes_per_device"] > 0, (plan, lines[-1])
if "--priced" in sys.argv:
    priced = json.load(open(folder / f"{ways[1]}.estimate"))["predicted"]
    host = priced["memory_breakdown"]["host"] / said[1]["memory_breakdown"]["host"]
    assert abs(host - 1) < 0.25, f"the estimate of the host's memory is {host} of the plan's"
    assert 1 <= priced["memory_bytes_per_device"] / said[1]["memory_bytes_per_device"] < 1.25, (priced, said[1])
