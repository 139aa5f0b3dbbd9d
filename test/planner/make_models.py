"""Graphs of kinds that models/ lacks, without weights and of sizes that clusters are for; only what `record` plans.

    t5(path, layers, hidden, heads, length)      encoder and decoder with RMS norms, as in Raffel et al. 2019
    moe(path, layers, hidden, heads, length, experts)    a GPT, every second MLP of it switched over experts, which
                                                 products with masks dispatch (Fedus et al. 2021)
    unet(path, width, size)                      convolutions down and up again, as in Ronneberger et al. 2015
"""
import pathlib
import sys

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
sys.path[:0] = [str(MODELS), str(MODELS / "gpt")]
import make_gpt  # noqa: E402
import onnx_writer  # noqa: E402

FLOAT, INT64 = onnx_writer.FLOAT, onnx_writer.INT64


class Graph(make_gpt.Graph):
    def __init__(self, name):
        super().__init__(name, 0.0)

    def product(self, path, x, inputs, outputs):
        return self.op("MatMul", path + "/MatMul", x, self.weight(path[1:].replace("/", ".") + ".weight", inputs, outputs))

    def rms_norm(self, path, x, hidden):
        y = self.op("ReduceMean", path + "/ReduceMean", self.op("Mul", path + "/Mul", x, x), "last", keepdims=1)
        y = self.op("Div", path + "/Div", x, self.op("Sqrt", path + "/Sqrt", self.op("Add", path + "/Add", y, "epsilon")))
        return self.op("Mul", path + "/Mul_1", y, self.weight(path[1:].replace("/", ".") + ".weight", hidden))


def t5_attention(g, path, x, memory, hidden, bias):
    q, k, v = (g.op("Transpose", f"{path}/{part}/Transpose",
                    g.op("Reshape", f"{path}/{part}/Reshape", g.product(f"{path}/{part}", of, hidden, hidden), "by_head"),
                    perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])
               for part, of in (("q", x), ("k", memory), ("v", memory)))
    scores = g.op("MatMul", path + "/scores/MatMul", q, k)
    scores = g.op("Add", path + "/bias/Add", scores, bias) if bias else scores
    y = g.op("MatMul", path + "/values/MatMul", g.op("Softmax", path + "/Softmax", scores, axis=-1), v)
    y = g.op("Reshape", path + "/merge/Reshape", g.op("Transpose", path + "/merge/Transpose", y, perm=[0, 2, 1, 3]), "merged")
    return g.product(path + "/o", y, hidden, hidden)


def t5(path, layers, hidden, heads, length, vocab=32128):
    g = Graph(f"t5-{layers}x{hidden}")
    g.constant("by_head", [0, 0, heads, hidden // heads])
    g.constant("merged", [0, 0, hidden])
    g.constant("epsilon", 1e-6)
    g.constant("last", [-1])
    table = g.weight("embedding", vocab, hidden)
    square = g.op("ConstantOfShape", "/mask/ConstantOfShape", g.constant("square", [length, length]),
                  value=onnx_writer.values("", [make_gpt.LOWEST]))
    mask = g.op("Trilu", "/mask/Trilu", square, g.constant("one", 1), upper=1)
    memory = None
    for side in ("encoder", "decoder"):
        x = g.op("Gather", f"/{side}/embed/Gather", table, side + "_tokens")
        bias = g.weight(side + ".bias.weight", heads, length, length)
        if memory:
            bias = g.op("Add", "/decoder/mask/Add", bias, mask)
        for layer in range(layers):
            at = f"/{side}/layers.{layer}"
            for part, of in (("self", None), ("cross", memory)):
                if part == "cross" and not memory:
                    continue
                y = g.rms_norm(f"{at}/{part}/norm", x, hidden)
                y = t5_attention(g, f"{at}/{part}", y, of or y, hidden, None if of else bias)
                x = g.op("Add", f"{at}/{part}/residual/Add", x, y)
            y = g.product(at + "/mlp/up", g.rms_norm(at + "/mlp/norm", x, hidden), hidden, 4 * hidden)
            y = g.product(at + "/mlp/down", g.op("Relu", at + "/mlp/Relu", y), 4 * hidden, hidden)
            x = g.op("Add", at + "/mlp/residual/Add", x, y)
        memory = g.rms_norm(f"/{side}/norm", x, hidden)
    g.op("MatMul", "/head/MatMul", memory, g.op("Transpose", "/head/Transpose", table, perm=[1, 0]), outputs=["logits"])
    g.write(path, [(side + "_tokens", INT64, ["batch", length]) for side in ("encoder", "decoder")],
            [("logits", FLOAT, ["batch", length, vocab])])


def switched(g, path, x, hidden, experts, capacity):
    """[batch, position, hidden]: every token by the expert that its router likes best, as far as that one has room."""
    share = g.op("Softmax", path + "/Softmax", g.product(path + "/router", x, hidden, experts), axis=-1)
    chosen = g.op("OneHot", path + "/OneHot", g.op("ArgMax", path + "/ArgMax", share, axis=-1, keepdims=0), "experts",
                  "off_on")
    place = g.op("Sub", path + "/Sub", g.op("CumSum", path + "/CumSum", chosen, "one"), chosen)
    place = g.op("ReduceSum", path + "/ReduceSum", g.op("Mul", path + "/Mul", place, chosen), "last", keepdims=0)
    place = g.op("Cast", path + "/Cast", g.op("Min", path + "/Min", place, "capacity"), to=INT64)
    slot = g.op("Slice", path + "/Slice", g.op("OneHot", path + "/OneHot_1", place, "slots", "off_on"), "from", "to", "last")
    kept = g.op("Mul", path + "/Mul_1", g.op("Unsqueeze", path + "/Unsqueeze", chosen, "last"),
                g.op("Unsqueeze", path + "/Unsqueeze_1", slot, "two"))
    weight = g.op("ReduceMax", path + "/ReduceMax", share, "last", keepdims=0)
    weight = g.op("Unsqueeze", path + "/Unsqueeze_2", weight, "two_three")
    key = path[1:].replace("/", ".")
    y = g.op("Einsum", path + "/dispatch/Einsum", kept, x, equation="bsec,bsd->ebcd")
    y = g.op("Einsum", path + "/up/Einsum", y, g.weight(key + ".up.weight", experts, hidden, 4 * hidden),
             equation="ebcd,edf->ebcf")
    y = g.op("Einsum", path + "/down/Einsum", g.op("Gelu", path + "/Gelu", y),
             g.weight(key + ".down.weight", experts, 4 * hidden, hidden), equation="ebcf,efd->ebcd")
    return g.op("Einsum", path + "/combine/Einsum", g.op("Mul", path + "/Mul_2", kept, weight), y, equation="bsec,ebcd->bsd")


def moe(path, layers, hidden, heads, length, experts, vocab=51200):
    g = Graph(f"moe-{layers}x{hidden}x{experts}")
    capacity = 2 * length // experts
    for name, entries in (("experts", experts), ("slots", capacity + 1), ("off_on", [0.0, 1.0]), ("one", 1), ("last", [-1]),
                          ("capacity", float(capacity)), ("from", [0]), ("to", [capacity]), ("two", [2]), ("two_three", [2, 3])):
        g.constant(name, entries)
    square = g.op("ConstantOfShape", "/mask/ConstantOfShape", g.constant("square", [length, length]),
                  value=onnx_writer.values("", [make_gpt.LOWEST]))
    shared = {"sizes": g.constant("qkv_sizes", [hidden] * 3), "by_head": g.constant("by_head", [0, 0, heads, hidden // heads]),
              "merged": g.constant("merged", [0, 0, hidden]), "scale": g.constant("scale", (hidden // heads) ** -0.5),
              "mask": g.op("Trilu", "/mask/Trilu", square, "one", upper=1)}
    table = g.weight("embedding", vocab, hidden)
    x = g.op("Gather", "/embed/Gather", table, "tokens")
    for layer in range(layers):
        at = f"/layers.{layer}"
        y = make_gpt.attention(g, at + "/attn", g.norm(at + "/ln1", x, hidden), hidden, heads, shared)
        x = g.op("Add", at + "/attn/residual/Add", x, y)
        y = g.norm(at + "/ln2", x, hidden)
        if layer % 2:
            y = switched(g, at + "/moe", y, hidden, experts, capacity)
        else:
            y = g.op("Gelu", at + "/mlp/Gelu", g.linear(at + "/mlp/up", y, hidden, 4 * hidden))
            y = g.linear(at + "/mlp/down", y, 4 * hidden, hidden)
        x = g.op("Add", at + "/mlp/residual/Add", x, y)
    g.op("MatMul", "/head/MatMul", g.norm("/ln_f", x, hidden), g.op("Transpose", "/head/Transpose", table, perm=[1, 0]),
         outputs=["logits"])
    g.write(path, [("tokens", INT64, ["batch", length])], [("logits", FLOAT, ["batch", length, vocab])])


def unet(path, width, size, depth=4):
    g = Graph(f"unet-{width}")

    def twice(at, x, inner, outer):
        for number, channels in enumerate((inner, outer)):
            key = f"{at[1:].replace('/', '.')}.{number}"
            y = g.op("Conv", f"{at}/Conv_{number}", x, g.weight(key + ".weight", outer, channels, 3, 3),
                     g.weight(key + ".bias", outer), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            x = g.op("Relu", f"{at}/Relu_{number}", y)
        return x

    x, inner, kept = "image", 3, []
    for level in range(depth):
        x = twice(f"/down.{level}", x, inner, width << level)
        kept.append(x)
        x = g.op("MaxPool", f"/down.{level}/MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        inner = width << level
    x = twice("/middle", x, inner, 2 * inner)
    for level in reversed(range(depth)):
        outer, at = width << level, f"/up.{level}"
        x = g.op("ConvTranspose", at + "/ConvTranspose", x, g.weight(f"up.{level}.turn.weight", 2 * outer, outer, 2, 2),
                 kernel_shape=[2, 2], strides=[2, 2])
        x = twice(at, g.op("Concat", at + "/Concat", kept[level], x, axis=1), 2 * outer, outer)
    g.op("Conv", "/out/Conv", x, g.weight("out.weight", 3, width, 1, 1), outputs=["y"], kernel_shape=[1, 1])
    g.write(path, [("image", FLOAT, ["batch", 3, size, size])], [("y", FLOAT, ["batch", 3, size, size])])
