#!/usr/bin/env python3
"""Write the ONNX graph of a GPT of any size, without weights: what plans and cost models are tried on.

    python3 models/gpt/make_gpt.py --layers 24 --hidden 2304 --heads 24 --vocab 51200 --seq 2048 -o gpt-1.7b.onnx

Needs nothing but Python. A decoder with LayerNorm before each part: token and position embeddings, one
qkv projection, causal attention, GELU, an output head tied to the token embedding. Input: tokens [batch, seq]; output:
logits [batch, seq, vocab]. --dropout 0.1 adds Dropout where GPT-2 and Megatron-LM have it: after the embeddings, on the
attention's weights and before both residual sums. --gelu tanh is GPT-2's approximation. Weights are external tensors of a file that is not written.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import onnx_writer  # noqa: E402


LOWEST = -3.4028234663852886e38  # of float32


class Graph(onnx_writer.Graph):
    def __init__(self, name, dropout):
        super().__init__(name)
        self.rate = dropout
        if dropout:
            self.constant("dropout.ratio", dropout)
            self.constant("dropout.training", True)

    def op(self, kind, name, *inputs, outputs=None, **attributes):
        outputs = super().op(kind, name, inputs, outputs or [name + "_output"], **attributes)
        return outputs[0] if len(outputs) == 1 else outputs

    def dropout(self, name, x):
        return self.op("Dropout", name, x, "dropout.ratio", "dropout.training") if self.rate else x

    def norm(self, path, x, hidden):
        key = path[1:].replace("/", ".")
        return self.op("LayerNormalization", path + "/LayerNormalization", x, self.weight(key + ".weight", hidden),
                       self.weight(key + ".bias", hidden), axis=-1, epsilon=1e-5)

    def linear(self, path, x, inputs, outputs):
        key = path[1:].replace("/", ".")
        y = self.op("MatMul", path + "/MatMul", x, self.weight(key + ".weight", inputs, outputs))
        return self.op("Add", path + "/Add", y, self.weight(key + ".bias", outputs))


def attention(g, path, x, hidden, heads, shared):
    parts = g.op("Split", path + "/Split", g.linear(path + "/qkv", x, hidden, 3 * hidden), shared["sizes"],
                 outputs=[f"{path}/Split_{part}" for part in "qkv"], axis=-1)
    q, k, v = (g.op("Transpose", f"{path}/{part}/Transpose",
                    g.op("Reshape", f"{path}/{part}/Reshape", y, shared["by_head"]),
                    perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]) for part, y in zip("qkv", parts))
    scores = g.op("MatMul", path + "/scores/MatMul", g.op("Mul", path + "/scale/Mul", q, shared["scale"]), k)
    weights = g.op("Softmax", path + "/Softmax", g.op("Add", path + "/mask/Add", scores, shared["mask"]), axis=-1)
    weights = g.dropout(path + "/Dropout", weights)
    y = g.op("Transpose", path + "/merge/Transpose", g.op("MatMul", path + "/values/MatMul", weights, v),
             perm=[0, 2, 1, 3])
    return g.linear(path + "/proj", g.op("Reshape", path + "/merge/Reshape", y, shared["merged"]), hidden, hidden)


def gpt(layers, hidden, heads, vocab, seq, dropout=0.0, gelu="none"):
    if hidden % heads:
        raise SystemExit("--hidden must be a multiple of --heads")
    g = Graph(f"gpt-{layers}x{hidden}", dropout)
    lowest = onnx_writer.values("", [LOWEST])
    square = g.op("ConstantOfShape", "/mask/ConstantOfShape", g.constant("square", [seq, seq]), value=lowest)
    shared = {"sizes": g.constant("qkv_sizes", [hidden] * 3), "by_head": g.constant("by_head", [0, 0, heads, hidden // heads]),
              "merged": g.constant("merged", [0, 0, hidden]), "scale": g.constant("scale", (hidden // heads) ** -0.5),
              "mask": g.op("Trilu", "/mask/Trilu", square, g.constant("one", 1), upper=1)}
    table = g.weight("tok_emb.weight", vocab, hidden)
    x = g.op("Add", "/pos_emb/Add", g.op("Gather", "/tok_emb/Gather", table, "tokens"), g.weight("pos_emb.weight", seq, hidden))
    x = g.dropout("/emb/Dropout", x)
    for layer in range(layers):
        at = f"/layers.{layer}"
        y = attention(g, at + "/attn", g.norm(at + "/ln1", x, hidden), hidden, heads, shared)
        x = g.op("Add", at + "/attn/residual/Add", x, g.dropout(at + "/attn/residual/Dropout", y))
        y = g.linear(at + "/mlp/up", g.norm(at + "/ln2", x, hidden), hidden, 4 * hidden)
        y = g.linear(at + "/mlp/down", g.op("Gelu", at + "/mlp/Gelu", y, approximate=gelu), 4 * hidden, hidden)
        x = g.op("Add", at + "/mlp/residual/Add", x, g.dropout(at + "/mlp/residual/Dropout", y))
    x = g.norm("/ln_f", x, hidden)
    g.op("MatMul", "/lm_head/MatMul", x, g.op("Transpose", "/lm_head/Transpose", table, perm=[1, 0]), outputs=["logits"])
    return g


def write(path, layers, hidden, heads, vocab, seq, dropout=0.0, gelu="none"):
    gpt(layers, hidden, heads, vocab, seq, dropout, gelu).write(
        path, [("tokens", onnx_writer.INT64, ["batch", seq])], [("logits", onnx_writer.FLOAT, ["batch", seq, vocab])],
        producer="make_gpt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "hidden", "heads", "vocab", "seq"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--gelu", choices=["none", "tanh"], default="none")
    parser.add_argument("-o", "--output", default="gpt.onnx")
    args = vars(parser.parse_args())
    output = args.pop("output")
    write(output, **args)
