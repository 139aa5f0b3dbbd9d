"""One training step by Cleave on one device: its loss, and every tensor before and after it, under PyTorch's names.

    with CleaveSide("model.onnx", recipe) as side:
        side.inputs                       # {"x": (float32, (4, 20)), "labels": (int64, (4,))}
        step = side.step({"x": x, "labels": labels})
        step.loss, step.before["fc.weight"], step.after["fc.weight"]
"""
import collections
import json
import pathlib
import tempfile

import numpy as np

from cleave._tool import run_tool
from cleave.training import Trainer

Step = collections.namedtuple("Step", "loss before after")


class CleaveSide:
    def __init__(self, model, recipe):
        self._folder = tempfile.TemporaryDirectory(prefix="cleave-check-")
        self.folder = pathlib.Path(self._folder.name)
        path = self.folder / "recipe.yaml"
        path.write_text(json.dumps(recipe))
        plan = self.folder / "model.plan"
        run_tool("compile", model, "--recipe", path, "--cluster", "cpu:1", "-o", plan, "--accept-doubts", quiet=True)
        self._trainer = Trainer(plan, snapshots=str(self.folder / "snapshots"))
        self.inputs = self._trainer.inputs

    def step(self, batch):
        """A step on a global batch."""
        before = self._exported()
        loss = self._trainer.step({name: batch[name] for name in self.inputs}).loss
        return Step(loss, before, self._exported())

    def _exported(self):
        self._trainer.save()
        path = self.folder / "weights.safetensors"
        run_tool("export", self.folder / "snapshots", "-o", path, quiet=True)
        return read_tensors(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._trainer.close()
        self._folder.cleanup()


TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
         "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_}


def read_tensors(path):
    """The tensors of a safetensors file, floats as float32 or wider."""
    data = pathlib.Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            flat = (np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            flat = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
        found[name] = flat.reshape(entry["shape"])
    return found
