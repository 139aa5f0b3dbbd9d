"""edit_safetensors.py IN OUT CHANGE...: a safetensors file with changes: drop=NAME, copy=NEW:NAME, scale=NAME:FACTOR,
shape=NAME:SIZE,SIZE, dtype=NAME:TYPE."""
import json
import struct
import sys

import numpy as np

raw = open(sys.argv[1], "rb").read()
length = struct.unpack("<Q", raw[:8])[0]
header, body = json.loads(raw[8:8 + length]), raw[8 + length:]
tensors = {name: [one["dtype"], one["shape"], body[one["data_offsets"][0]:one["data_offsets"][1]]] for name, one in header.items()}
for change in sys.argv[3:]:
    kind, _, rest = change.partition("=")
    name, _, value = rest.partition(":")
    if kind == "drop":
        del tensors[name]
    elif kind == "copy":
        tensors[name] = list(tensors[value])
    elif kind == "scale":
        tensors[name][2] = (np.frombuffer(tensors[name][2], np.float32) * float(value)).astype(np.float32).tobytes()
    elif kind == "shape":
        tensors[name][1] = [int(size) for size in value.split(",")]
    elif kind == "dtype":
        tensors[name][0] = value
    else:
        sys.exit(f"unknown change {change}")
header, data = {}, b""
for name, (dtype, shape, bytes_) in tensors.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(bytes_)]}
    data += bytes_
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data)
