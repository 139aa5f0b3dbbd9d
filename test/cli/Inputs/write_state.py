"""write_state.py STATE.npz PART OUT: what PyTorch recorded under PART/, as a safetensors file."""
import json
import struct
import sys

import numpy as np

recorded = np.load(sys.argv[1])
names = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}
header, data = {}, b""
for name in recorded.files:
    if name.startswith(sys.argv[2] + "/"):
        value = recorded[name]
        header[name.split("/", 1)[1]] = {"dtype": names[value.dtype], "shape": value.shape,
                                         "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
text = json.dumps(header).encode()
with open(sys.argv[3], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
