"""Models without weights that memory.py tries splits on beside the recorded ones: tables and convolutions, of which most
of the memory is parameters or activations.

    folder = write("two_tables", pathlib.Path("scratch"))    # scratch/two_tables/model.onnx and recipe.yaml

Rows and columns are such that parts of a sum over all of a table do not end where its rows do.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models"))
import onnx_writer  # noqa: E402
from onnx_writer import FLOAT, INT64  # noqa: E402


class Graph(onnx_writer.Graph):
    def op(self, kind, name, *inputs, **attributes):
        return super().op(kind, name, inputs, [name + "_output"], **attributes)[0]

    def linear(self, name, x, inner, outer):
        return self.op("Gemm", f"/{name}", x, self.weight(f"{name}.weight", inner, outer),
                       self.weight(f"{name}.bias", outer))

    def convolution(self, name, x, inner, outer, stride, groups=1, kernel=3):
        return self.op("Conv", f"/{name}", x, self.weight(f"{name}.weight", outer, inner // groups, kernel, kernel),
                       strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)


def two_tables():
    """A recommender: users and items, and whether they go together."""
    g = Graph("two_tables")
    parts = [g.op("Gather", f"/{name}", g.weight(f"{name}.table", rows, 64), name)
             for name, rows in (("user", 20000), ("item", 50000))]
    x = g.op("Relu", "/relu", g.linear("mlp1", g.op("Concat", "/cat", *parts, axis=1), 128, 256))
    super(Graph, g).op("Gemm", "/mlp2", [x, g.weight("mlp2.weight", 256, 1), g.weight("mlp2.bias", 1)], ["y"])
    return g, [("user", INT64, ["batch"]), ("item", INT64, ["batch"])], ["batch", 1], "bce_with_logits"


def tied_tables():
    """The next item of a history: one table of items is looked up and multiplied with; users and regions beside it."""
    g = Graph("tied_tables")
    items = g.weight("items.table", 3001, 48)
    history = g.op("ReduceMean", "/mean", g.op("Gather", "/items", items, "history"), g.constant("axis", [1]), keepdims=0)
    user = g.op("Gather", "/user", g.weight("user.table", 1500, 32), "user")
    region = g.op("Gather", "/region", g.weight("region.table", 70, 16), "region")
    x = g.op("Relu", "/relu", g.linear("mlp1", g.op("Concat", "/cat", history, user, region, axis=1), 96, 144))
    x = g.linear("mlp2", x, 144, 48)
    super(Graph, g).op("MatMul", "/scores", [x, g.op("Transpose", "/transpose", items, perm=[1, 0])], ["y"])
    inputs = [("history", INT64, ["batch", 8]), ("user", INT64, ["batch"]), ("region", INT64, ["batch"])]
    return g, inputs, ["batch", 3001], "softmax_cross_entropy"


def convolutions():
    """Three of them with nothing between."""
    g = Graph("convolutions")
    x = "x"
    for index, (inner, outer) in enumerate(((3, 16), (16, 32), (32, 64))):
        x = g.convolution(f"c{index}", x, inner, outer, 2)
    super(Graph, g).op("Flatten", "/flatten", [g.op("GlobalAveragePool", "/pool", x)], ["y"])
    return g, [("x", FLOAT, ["batch", 3, 32, 32])], ["batch", 64], "softmax_cross_entropy"


def separable():
    """Convolutions of single channels, of groups, of points, and pooling."""
    g = Graph("separable")
    x = g.op("Relu", "/relu0", g.convolution("stem", "x", 3, 16, 1))
    x = g.op("MaxPool", "/max", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Relu", "/relu1", g.convolution("depth", x, 16, 16, 1, groups=16))
    x = g.op("Relu", "/relu2", g.convolution("point", x, 16, 32, 1, kernel=1))
    x = g.op("Relu", "/relu3", g.convolution("grouped", x, 32, 32, 1, groups=4))
    x = g.op("AveragePool", "/average", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Flatten", "/flatten", g.op("GlobalAveragePool", "/pool", x))
    super(Graph, g).op("Gemm", "/fc", [x, g.weight("fc.weight", 32, 10), g.weight("fc.bias", 10)], ["y"])
    return g, [("x", FLOAT, ["batch", 3, 32, 32])], ["batch", 10], "softmax_cross_entropy"


MODELS = {make.__name__: make for make in (two_tables, tied_tables, convolutions, separable)}


def write(name, scratch):
    folder = scratch / name
    folder.mkdir()
    graph, inputs, shape, loss = MODELS[name]()
    graph.write(folder / "model.onnx", inputs, [("y", FLOAT, shape)], producer="small_models")
    (folder / "recipe.yaml").write_text('{"dims": {"batch": 32}, "loss": {"kind": "%s", "labels": {"name": "labels"}}, '
                                        '"optimizer": {"kind": "adamw", "lr": 0.001}, '
                                        '"init": {"kind": "normal", "std": 0.02}}\n' % loss)
    return folder
