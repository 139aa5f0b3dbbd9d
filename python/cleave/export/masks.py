"""Random masks that exporters write as comparisons with random numbers, as dropouts of ones, which they are.

    bernoulli(t, keep)         is  keep * dropout(ones, 1 - keep)               stochastic depth
    feature_dropout(x, ratio)  is  x * dropout(ones of [n, c, 1, 1], ratio)     Dropout2d
"""
import torch

aten = torch.ops.aten


def write_masks_as_dropouts(program):
    """Rewrites the operators of an ExportedProgram's graph in place."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target in (aten.bernoulli_.float, aten.bernoulli.p):
            _bernoulli(graph, node)
        elif node.target in (aten.feature_dropout.default, aten.feature_dropout_.default):
            _feature_dropout(graph, node)
    program.graph_module.recompile()


def _mask(graph, like, ratio):
    ones = _call(graph, aten.full_like.default, (like, 1.0), like.meta)
    return _call(graph, aten.dropout.default, (ones, ratio, True), like.meta)


def _call(graph, target, args, meta):
    node = graph.call_function(target, args)
    node.meta = dict(meta)
    return node


def _bernoulli(graph, node):
    like, keep = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
    with graph.inserting_before(node):
        made = _call(graph, aten.mul.Tensor, (_mask(graph, like, 1 - keep), keep), node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _feature_dropout(graph, node):
    data, ratio, train = node.args
    if not train or not ratio:
        return
    with graph.inserting_before(node):
        like = data
        for dim in range(2, data.meta["val"].dim()):
            like = _call(graph, aten.slice.Tensor, (like, dim, 0, 1), {**like.meta, "val": like.meta["val"].narrow(dim, 0, 1)})
        made = _call(graph, aten.mul.Tensor, (data, _mask(graph, like, ratio)), node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
