"""Complex numbers, which exporters do not write, as pairs of real ones: rotary positions of Llama's and DeepSeek's own code.

    view_as_complex(x)   x             polar(r, a)    stack([r * cos(a), r * sin(a)], -1)
    view_as_real(z)      z             z * w          the product of pairs
"""
import torch

aten = torch.ops.aten
SAME = ("clone", "detach", "alias", "contiguous", "_to_copy", "to", "lift_fresh_copy")


def is_complex(node):
    value = getattr(node, "meta", {}).get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


def write_complex_as_pairs(program):
    """Rewrites the operators of an ExportedProgram's graph in place; what it does not know it leaves to the exporter."""
    graph, pairs = program.graph_module.graph, {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        with graph.inserting_before(node):
            if node.target is aten.view_as_real.default and node.args[0] in pairs:
                node.replace_all_uses_with(pairs[node.args[0]])
            elif is_complex(node):
                made = _pair(graph, node, pairs)
                if made is None:
                    return
                pairs[node] = made
    for node in reversed(list(graph.nodes)):
        checks = node.target is aten._assert_tensor_metadata.default and node.args[0] in pairs
        if checks or not node.users and (node in pairs or node.target is aten.view_as_real.default):
            graph.erase_node(node)
    program.graph_module.recompile()


def _call(graph, target, *args, **kwargs):
    """A new node, with the value that its operands' values give."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = target(*_values(args), **kwargs)
    return node


def _values(args):
    return [[one.meta["val"] for one in arg] if isinstance(arg, list) and arg and isinstance(arg[0], torch.fx.Node)
            else arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in args]


def _pair(graph, node, pairs):
    name = node.target._schema.name.removeprefix("aten::")
    if name == "view_as_complex":
        return node.args[0]
    if name == "polar":
        size, angle = node.args
        parts = [_call(graph, aten.mul.Tensor, size, _call(graph, of, angle)) for of in (aten.cos.default, aten.sin.default)]
        return _call(graph, aten.stack.default, parts, -1)
    if name == "mul":
        return _product(graph, *node.args[:2], pairs)
    if node.args[0] not in pairs:
        return None
    pair = pairs[node.args[0]]
    if name in SAME:
        return pair
    if name == "unsqueeze":
        return _call(graph, node.target, pair, node.args[1] - (node.args[1] < 0))
    if name in ("view", "reshape", "expand"):
        return _call(graph, node.target, pair, [*node.args[1], -1 if name == "expand" else 2])
    if name in ("slice", "select") and (len(node.args) < 2 or node.args[1] >= 0):
        return _call(graph, node.target, pair, *node.args[1:])
    return None


def _product(graph, x, y, pairs):
    def parts(z):
        return [_call(graph, aten.select.int, pairs[z], -1, at) for at in range(2)]
    if x in pairs and y in pairs:
        (a, b), (c, d) = parts(x), parts(y)
        ac, bd, ad, bc = (_call(graph, aten.mul.Tensor, p, q) for p, q in ((a, c), (b, d), (a, d), (b, c)))
        both = [_call(graph, aten.sub.Tensor, ac, bd), _call(graph, aten.add.Tensor, ad, bc)]
        return _call(graph, aten.stack.default, both, -1)
    pair, other = (pairs[x], y) if x in pairs else (pairs.get(y), x)
    if pair is None:
        return None
    if isinstance(other, torch.fx.Node):
        other = _call(graph, aten.unsqueeze.default, other, -1)
    return _call(graph, aten.mul.Tensor, pair, other)
