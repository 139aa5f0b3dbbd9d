"""Files that people give in place of a model, into the folder named on the command line."""
import json
import pathlib
import pickle
import struct
import sys
import zipfile

import numpy as np

folder = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(folder / "checkpoint.pt", "w") as archive:  # as torch.save writes
    archive.writestr("checkpoint/data.pkl", pickle.dumps({"weight": 1}, protocol=2))
    archive.writestr("checkpoint/version", "3\n")
(folder / "old.pt").write_bytes(pickle.dumps({"weight": 1}, protocol=2))
header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
(folder / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
np.savez(folder / "data.npz", x=np.zeros(3))
(folder / "pointer.onnx").write_text("version https://git-lfs/spec/v1\noid sha256:00\nsize 1\n")
