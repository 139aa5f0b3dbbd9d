"""Makes the written graph train as the module does: BatchNorm by the batch, dropouts that drop.

Exporters write a BatchNorm of a module in train() in inference form (torch 2.5 to 2.15), and the dropout of
scaled_dot_product_attention without its training input. What cannot be kept is refused by name.
"""
import numpy as np
import onnx
from torch import nn

from cleave._tool import CleaveError
from cleave.export.forms import norms


def refuse_unfit(module):
    """Refuses what no exporter keeps in training form."""
    for name, norm in norms(module):
        name = name or type(norm).__name__
        if norm.training and norm.momentum is None:
            raise CleaveError(f"{name}: momentum=None averages all batches, and an exported norm has a fixed momentum; "
                              "give it one, such as 0.1", 1)
        if norm.training and not isinstance(norm, nn.modules.batchnorm._BatchNorm):
            raise CleaveError(f"{name}: an exported {type(norm).__name__} does not move its running statistics; "
                              "track_running_stats=False trains the same", 1)
    for name, tensor in module.named_parameters():
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise CleaveError(f"{name}: has a gradient hook, which no exported graph has", 1)
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise CleaveError(f"{name or type(part).__name__}: has a backward hook, which no exported graph has", 1)
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and (part.scale_grad_by_freq or part.max_norm is not None):
            raise CleaveError(f"{name or type(part).__name__}: max_norm and scale_grad_by_freq change weights and gradients "
                              "beside the graph, and an exported one has neither", 1)


def refuse_random(others):
    """`others`: the operators of forward that draw random numbers and are no dropouts."""
    if others:
        raise CleaveError(f"{others[0]}: draws random numbers in forward; only dropouts can be exported for training", 1)


def keep_norms(graph, module, names):
    """Gives each BatchNormalization of a norm in train() its training form. `names`: initializer -> the tensor's full name."""
    by_mean = {f"{name}.running_mean".lstrip("."): (name, norm) for name, norm in norms(module)}
    kept = set()
    for node in graph.nodes("BatchNormalization"):
        found = by_mean.get(names.get(graph.source(node.input[3])))
        if not found or not found[1].training:
            continue
        name, norm = found
        attributes = {attribute.name: attribute for attribute in node.attribute}
        for key, value in (("training_mode", 1), ("momentum", 1.0 - norm.momentum)):
            if key in attributes:
                node.attribute.remove(attributes[key])
            node.attribute.append(onnx.helper.make_attribute(key, value))
        used = list(node.output)[:1]
        node.output[:] = [used[0], f"{used[0]}_running_mean", f"{used[0]}_running_var"]
        kept.add(name)
    return kept


def keep_dropouts(graph, expected):
    """Sets each Dropout node's training input as the program says. `expected`: (ratio, active) in the graph's order."""
    nodes = graph.nodes("Dropout")
    ratios = [_ratio(graph, node) for node in nodes]
    if len(expected) != len(nodes) or any(abs(ratio - want) > 1e-6 for ratio, (want, _) in zip(ratios, expected)):
        raise CleaveError(f"the exporter wrote dropouts of {ratios}, and the program has {[ratio for ratio, _ in expected]}", 1)
    for node, (_, active) in zip(nodes, expected):
        if _is_active(graph, node) != active:
            name = graph.add_constant(f"{node.output[0]}_training", np.asarray(active))
            node.input[:] = [*node.input[:1], node.input[1] if len(node.input) > 1 else "", name]


def active_dropouts(graph):
    """The ratios of the nodes that drop, in the graph's order."""
    return [_ratio(graph, node) for node in graph.nodes("Dropout") if _ratio(graph, node) > 0 and _is_active(graph, node)]


def _ratio(graph, node):
    old = [attribute.f for attribute in node.attribute if attribute.name == "ratio"]  # before opset 12
    value = graph.constant(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    return old[0] if old else 0.5 if value is None else float(value)


def _is_active(graph, node):
    """A Dropout drops if its training_mode input is true; before opset 7 unless is_test is set."""
    tests = [attribute.i for attribute in node.attribute if attribute.name == "is_test"]
    if tests:
        return not tests[0]
    value = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    return value is not None and bool(value)
