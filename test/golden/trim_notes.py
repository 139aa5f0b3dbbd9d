#!/usr/bin/env python3
"""Takes out of exported models what torch.onnx notes for people and Cleave does not read: stack traces, the classes of
modules, namespaces, names of rewriting rules. test/golden/exports keeps all but the traces. Needs onnx.

    trim_notes.py MODEL.onnx...
"""
import pathlib
import sys

import onnx

NOTES = {"namespace", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.stack_trace", "pkg.onnxscript.rewriter.rule_name"}


def trim(model):
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        for node in graph.node:
            kept = [entry for entry in node.metadata_props if entry.key not in NOTES]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]


if __name__ == "__main__":
    for path in sys.argv[1:]:
        model = onnx.load_from_string(pathlib.Path(path).read_bytes())
        before = model.ByteSize()
        trim(model)
        if model.ByteSize() < before:
            pathlib.Path(path).write_bytes(model.SerializeToString())
