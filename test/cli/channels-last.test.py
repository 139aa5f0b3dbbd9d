"""Says which transposes a partitioned module has in @final; fails where one stands between convolutions.

    channels-last.test.py MODULE.mlir WEIGHTS            WEIGHTS: 1 if weights have their channels last, too
"""
import collections
import re
import sys

text, weights = open(sys.argv[1]).read(), sys.argv[2] == "1"
body = text[text.index("func.func @final"):]
body = body[:body.index("\n  }\n")]
convolutions = [line for line in body.splitlines() if re.search(r"onnx\.Conv(Grad\w+)? ", line)]
assert all("{channels_last" in line for line in convolutions)
assert all(("weight_channels_last" in line) == weights for line in convolutions)
found = collections.Counter()
for shape in re.findall(r"onnx\.Transpose .* : \(tensor<([\dx]+)x\w+>\)", body):
    sizes = [int(size) for size in shape.split("x")]
    if sizes == [8, 3, 224, 224]:
        found["images"] += 1
    elif sizes[2] == sizes[3] and sizes[2] in (3, 7):
        found["weights"] += 1
    elif sizes[1] == sizes[2] and sizes[1] in (3, 7):
        found["gradients"] += 1
    else:
        sys.exit(f"a transpose of {shape}")
print(f"final: {len(convolutions)} convolutions, all with their channels last{', of weights too' * weights}; transposes of "
      + ", ".join(f"{found[what]} {what}" for what in ("images", "weights", "gradients")))
