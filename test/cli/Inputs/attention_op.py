"""Writes attention_op.onnx, beside this file: one layer with the opset-23 Attention operator, causal, 4 query heads on 2
key and value heads. Needs the onnx package; run by hand."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(0)
HIDDEN, HEADS, CLASSES, LENGTH = 16, 4, 24, 8


def weight(name, *shape):
    return numpy_helper.from_array((random.standard_normal(shape) * 0.2).astype(np.float32), name)


weights = [weight("tokens", CLASSES, HIDDEN), weight("positions", LENGTH, HIDDEN), weight("wq", HIDDEN, HIDDEN),
           weight("wk", HIDDEN, HIDDEN // 2), weight("wv", HIDDEN, HIDDEN // 2), weight("wo", HIDDEN, HIDDEN),
           weight("head", HIDDEN, CLASSES)]
nodes = [helper.make_node("Gather", ["tokens", "ids"], ["e"]), helper.make_node("Add", ["e", "positions"], ["x"]),
         helper.make_node("MatMul", ["x", "wq"], ["q"]), helper.make_node("MatMul", ["x", "wk"], ["k"]),
         helper.make_node("MatMul", ["x", "wv"], ["v"]),
         helper.make_node("Attention", ["q", "k", "v"], ["a"], name="attention", q_num_heads=HEADS,
                          kv_num_heads=HEADS // 2, is_causal=1),
         helper.make_node("MatMul", ["a", "wo"], ["o"]), helper.make_node("Add", ["x", "o"], ["y"]),
         helper.make_node("MatMul", ["y", "head"], ["logits"])]
graph = helper.make_graph(nodes, "attention", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", LENGTH])],
                          [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", LENGTH, CLASSES])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
onnx.checker.check_model(model)
onnx.save(model, pathlib.Path(__file__).with_suffix(".onnx"))
