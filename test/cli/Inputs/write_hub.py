"""write_hub.py STATE.npz PART FOLDER [BF16]: what PyTorch recorded under PART/, as a hub's cache keeps it: FOLDER/blobs with two
shards, FOLDER/snapshot with links to them and an index. Every name begins with "model."."""
import json
import pathlib
import struct
import sys

import numpy as np

recorded = np.load(sys.argv[1])
folder, is_half = pathlib.Path(sys.argv[3]), len(sys.argv) > 4
for name in ("blobs", "snapshot"):
    (folder / name).mkdir(parents=True, exist_ok=True)
tensors = {"model." + name.split("/", 1)[1]: recorded[name] for name in recorded.files if name.startswith(sys.argv[2] + "/")}
names, where = sorted(tensors), {}
for shard, part in enumerate((names[::2], names[1::2]), 1):
    header, data, file = {}, b"", f"model-{shard:05}-of-00002.safetensors"
    for name in part:
        value, where[name] = tensors[name], file
        if is_half:  # to the nearest, ties to even
            bits = value.view(np.uint32)
            value = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        header[name] = {"dtype": "BF16" if is_half else "F32", "shape": value.shape,
                        "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    (folder / "blobs" / f"{shard}f00d").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "snapshot" / file).unlink(missing_ok=True)
    (folder / "snapshot" / file).symlink_to(f"../blobs/{shard}f00d")
(folder / "snapshot" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
