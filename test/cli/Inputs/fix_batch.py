"""fix_batch.py MODEL SAMPLES OUT: the model as exported for a fixed batch: its dimension "batch" is a number.

In the file a dimension is the field dim_param (0x12, length, "batch") or dim_value (0x08, varint); a varint of as many
bytes keeps every length around it."""
import sys

model, samples, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = open(model, "rb").read()
symbol = b"\x12\x05batch"
number = bytes([0x08, samples | 0x80, 0x80, 0x80, 0x80, 0x80, 0x00])
assert symbol in data and len(number) == len(symbol) and 0 < samples < 128
open(out, "wb").write(data.replace(symbol, number))
