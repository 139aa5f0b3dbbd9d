"""Seeded faults of an import: each changes an exported file as a wrong reading would, and check_import must find it.

    python faults.py [FAULT...]       prints what was found of each; status 1 if one is not
"""
import pathlib
import sys
import tempfile
import warnings

import cleave
import numpy as np
import onnx
import torch
from cleave.export.statement import read, write
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F

SIZE, LENGTH = 16, 6


class Patient(nn.Module):
    """Has one of everything that an import can get wrong."""

    def __init__(self):
        super().__init__()
        self.table, self.padded = nn.Embedding(SIZE, SIZE), nn.Embedding(SIZE, SIZE, padding_idx=0)
        self.norm, self.fc, self.fc2 = nn.LayerNorm(SIZE), nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.bn, self.lstm = nn.BatchNorm1d(SIZE), nn.LSTM(SIZE, SIZE, batch_first=True)
        self.drop, self.drop2 = nn.Dropout(0.1), nn.Dropout(0.3)
        self.scale, self.frozen = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.full((SIZE,), 1.5), requires_grad=False)
        self.register_buffer("shift", torch.randn(LENGTH, SIZE))
        self.head = nn.Linear(SIZE, SIZE, bias=False)
        self.head.weight = self.table.weight
        nn.init.zeros_(self.fc.bias)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, ids):
        x = self.table(ids) + self.padded(ids) + self.shift
        x = x + self.fc2(self.drop(F.gelu(self.fc(self.norm(x)))))
        x = x + self.bn(x.transpose(1, 2)).transpose(1, 2) * 0.5
        y = self.drop2(self.lstm(x)[0]) * self.scale * self.frozen
        return self.head(y - x)


class File:
    """An exported model that is about to be changed."""

    def __init__(self, path):
        self.model = onnx.load(path)
        self.graph, self.statement = self.model.graph, read(self.model)

    def nodes(self, kind):
        return [node for node in self.graph.node if node.op_type == kind]

    def reader(self, name):
        return next(node for node in self.graph.node if name in node.input)

    def maker(self, name):
        return next(node for node in self.graph.node if name in node.output)

    def initializer(self, name):
        return next(tensor for tensor in self.graph.initializer if tensor.name == name)

    def set(self, name, change):
        tensor = self.initializer(name)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(tensor))), name))

    def add(self, name, array):
        self.graph.initializer.append(numpy_helper.from_array(array, name))

    def attribute(self, node, name, value):
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    def bypass(self, node, operand=0):
        """The node hands on an operand."""
        for other in self.graph.node:
            other.input[:] = [node.input[operand] if name == node.output[0] else name for name in other.input]
        self.graph.node.remove(node)

    def literal(self, value):
        """(node, place) that reads a Constant of this value."""
        for node in self.graph.node:
            for at, name in enumerate(node.input):
                maker = next((other for other in self.graph.node if name in other.output and other.op_type == "Constant"), None)
                if maker is not None and node.op_type in ("Mul", "Div", "Add"):
                    held = onnx.helper.get_attribute_value(maker.attribute[0])
                    array = numpy_helper.to_array(held) if isinstance(held, onnx.TensorProto) else np.asarray(held)
                    if array.size == 1 and abs(float(array.reshape(-1)[0]) - value) < 1e-6:
                        return node, at
        raise LookupError(value)

    def entry(self, name):
        return next(entry for entry in self.statement["tensors"] if entry["name"] == name)


def replace_literal(file, name_or_value):
    node, at = file.literal(0.5)
    if isinstance(name_or_value, str):
        node.input[at] = name_or_value
    else:
        file.add("other_literal", np.float32(name_or_value))
        node.input[at] = "other_literal"


def untie(file):
    weight = numpy_helper.to_array(file.initializer(file.entry("table.weight")["held"][0]["initializer"]))
    file.add("own.weight", weight.copy())
    table = file.entry("table.weight")["held"][0]["initializer"]
    gather = next(node for node in file.nodes("Gather") if node.input[0] == table)
    gather.input[0] = "own.weight"
    file.statement["tensors"].append({"name": "own.weight", "kind": "parameter", "requires_grad": True, "shape": [SIZE, SIZE],
                                      "dtype": "float32", "held": [{"initializer": "own.weight", "form": "as_is"}]})


def swap_tie(file):
    """The other table is taken for the output layer."""
    table = file.entry("table.weight")["held"][0]["initializer"]
    transpose = next(node for node in file.nodes("Transpose") if node.input[0] == table)
    transpose.input[0] = "padded.weight"


def swap_gates(file):
    """The forget gate in the place of the output gate."""
    slices = {node.output[0] for node in file.nodes("Slice") if node.input[0] == "lstm.weight_ih_l0"}
    gates = next(node for node in file.nodes("Concat") if set(node.input) <= slices)
    gates.input[1], gates.input[2] = gates.input[2], gates.input[1]


def drop_term(file):
    file.bypass(next(node for node in file.nodes("Sub")))


def merge_biases(file):
    file.reader("fc2.bias").input[1 if file.reader("fc2.bias").input[1] == "fc2.bias" else 0] = "fc.bias"


def other_gelu(file):
    file.attribute(file.nodes("Gelu")[0], "approximate", "tanh")


def state(file, name, key, value):
    file.entry(name)[key] = value


def train_literal(file):
    """A literal has become a parameter of its own."""
    file.add("literal", np.float32(0.5))
    node, at = file.literal(0.5)
    node.input[at] = "literal"
    file.statement["tensors"].append({"name": "literal", "kind": "parameter", "requires_grad": True, "shape": [],
                                      "dtype": "float32", "held": [{"initializer": "literal", "form": "as_is"}]})


FAULTS = {
    "a square weight is transposed": lambda file: file.set("fc.weight", np.transpose),
    "a weight is used without its transposition": lambda file: file.attribute(file.reader("fc2.weight"), "perm", [0, 1]),
    "a parameter is frozen": lambda file: state(file, "fc.weight", "requires_grad", False),
    "a frozen parameter trains": lambda file: state(file, "frozen", "requires_grad", True),
    "padding_idx is forgotten": lambda file: file.entry("padded.weight").pop("padding_idx"),
    "a literal trains": train_literal,
    "a literal is the parameter of its value": lambda file: replace_literal(file, "scale"),
    "a literal has another value": lambda file: replace_literal(file, 0.51),
    "a bias is lost": lambda file: file.bypass(file.reader("fc.bias"), 1 if file.reader("fc.bias").input[0] == "fc.bias" else 0),
    "two equal biases are one": merge_biases,
    "BatchNorm by running statistics": lambda file: file.attribute(file.nodes("BatchNormalization")[0], "training_mode", 0),
    "BatchNorm with another momentum": lambda file: file.attribute(file.nodes("BatchNormalization")[0], "momentum", 0.8),
    "BatchNorm with another eps": lambda file: file.attribute(file.nodes("BatchNormalization")[0], "epsilon", 1e-2),
    "LayerNorm with another eps": lambda file: file.attribute(file.nodes("LayerNormalization")[0], "epsilon", 1e-2),
    "running statistics are swapped": lambda file: file.set("bn.running_mean", np.ones_like),
    "a tie is lost": untie,
    "a tie is swapped": swap_tie,
    "a dropout is missing": lambda file: file.bypass(file.nodes("Dropout")[0]),
    "a dropout has another ratio": lambda file: file.nodes("Dropout")[0].input.__setitem__(1, file.nodes("Dropout")[1].input[1]),
    "gates are swapped": swap_gates,
    "a term is lost": drop_term,
    "a buffer has other numbers": lambda file: file.set("shift", lambda array: array * np.float32(1.01)),
    "another GELU": other_gelu,
}


def main(names):
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    module, example = Patient().train(), (torch.randint(0, SIZE, (4, LENGTH)),)
    recipe, missed = {"loss": {"kind": "softmax_cross_entropy"}}, []
    with tempfile.TemporaryDirectory() as folder:
        good, path = pathlib.Path(folder, "good.onnx"), pathlib.Path(folder, "fault.onnx")
        cleave.export(module, example, good)
        print(f"{'no fault':44} {cleave.check_import(module, good, recipe=recipe, example=example)}", flush=True)
        for name in names or FAULTS:
            file = File(good)
            FAULTS[name](file)
            write(file.model, file.statement)
            onnx.save(file.model, path)
            try:
                result = cleave.check_import(module, path, recipe=recipe, example=example)
                print(f"{name:44} NOT FOUND: {result}", flush=True)
                missed.append(name)
            except cleave.ImportMismatch as error:
                print(f"{name:44} {error.differences[0]}", flush=True)
            except cleave.CleaveError as error:
                print(f"{name:44} REFUSED: {error}", flush=True)
    print(f"faults: {len(names or FAULTS) - len(missed)} of {len(names or FAULTS)} found")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
