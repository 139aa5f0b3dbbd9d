"""Export by torch.export: nothing is folded, merged or dropped.

`traced(module, example, dynamic)` is the program, and `translated(program, path)` writes its ONNX graph. The program tells
what a TorchScript hides: which tensors reach an output, which norms compute in training form, what the dropouts are.
"""
import contextlib
import io
import logging
import warnings

import torch
from onnxscript import ir

from cleave.export.attention import PlainAttention
from cleave.export.complex_pairs import write_complex_as_pairs
from cleave.export.masks import write_masks_as_dropouts
from cleave.export.weightless import has_numbers

aten = torch.ops.aten
TRAINING_NORMS = {"_native_batch_norm_legit_functional", "native_batch_norm", "cudnn_batch_norm", "batch_norm",
                  "_batch_norm_with_update_functional", "_native_batch_norm_legit"}


@contextlib.contextmanager
def quiet():
    """Without the exporter's progress; its warnings concern inference."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(before)


@contextlib.contextmanager
def as_it_runs():
    """The module is not told that it is exported: the encoders of Switch and LongT5 in transformers leave out then the mask
    that they make where none is given, and read it."""
    asked, torch.compiler.is_compiling = torch.compiler.is_compiling, lambda: False
    try:
        yield
    finally:
        torch.compiler.is_compiling = asked


def traced(module, example, dynamic, *ways):
    """The ExportedProgram with ATen's operators; `dynamic`: for any batch, or for those that the module distinguishes not.
    `ways`: contexts in which the module runs."""
    if not dynamic:
        return _exported(module, example, None, ways)
    try:
        return _exported(module, example, torch.export.Dim("batch"), ways)
    except Exception as error:  # diffusers asks whether a batch is 64 or more
        if "Not all values" not in str(error) or not hasattr(torch.export.Dim, "DYNAMIC"):
            raise
        return _exported(module, example, torch.export.Dim.DYNAMIC, ways)


def _exported(module, example, dimension, ways):
    shapes = example.dynamic_shapes(module, dimension) if dimension is not None else None
    with quiet(), PlainAttention(), contextlib.ExitStack() as stack:
        for way in ways:
            stack.enter_context(way())
        program = torch.export.export(module, example.args, example.kwargs or None, dynamic_shapes=shapes, strict=False)
    write_masks_as_dropouts(program)
    write_complex_as_pairs(program)
    return program


def translated(program, path):
    """Writes the program's ONNX graph, with external data where it is large. Returns the program as it was written."""
    tensors = list(program.state_dict.values())
    with quiet():
        written = torch.onnx.export(program, (), dynamo=True, optimize=False, verbose=False)
        if all(map(has_numbers, tensors)):
            written.save(str(path), external_data=sum(tensor.numel() * tensor.element_size() for tensor in tensors) > 1.5e9)
        else:
            _leave_out_weights(written.model, f"{path.name}.weights-left-out")
            ir.save(written.model, str(path))
    return written.exported_program


def _leave_out_weights(model, location):
    """Parameters without numbers become external data of a file that is not written."""
    offset = 0
    for name, value in model.graph.initializers.items():
        weight = value.const_value
        if isinstance(weight.raw, torch.Tensor) and not has_numbers(weight.raw):
            value.const_value = ir.ExternalTensor(location, offset, weight.nbytes, weight.dtype, shape=weight.shape, name=name)
            offset += weight.nbytes


def _users(program):
    """Names of the placeholders that reach an output of the user."""
    spec = program.graph_signature
    wanted = {name for name in spec.user_outputs if isinstance(name, str)}
    reached, work = set(), [node for node in program.graph.nodes if node.name in wanted]
    while work:
        node = work.pop()
        if node in reached:
            continue
        reached.add(node)
        work += node.all_input_nodes
    return {node.name for node in reached if node.op == "placeholder"}


def _along_floats(node, following):
    """The nodes that follow, one after the other, while they have floats."""
    seen, work = set(), list(following(node))
    while work:
        one = work.pop()
        values = one.meta.get("val")
        floats = any(isinstance(value, torch.Tensor) and value.is_floating_point()
                     for value in (values if isinstance(values, (tuple, list)) else [values]))
        if one in seen or not (floats or one.op == "output"):
            continue
        seen.add(one)
        work += following(one)
    return seen


class Facts:
    """What the program says about the module's tensors and nodes."""

    def __init__(self, program):
        spec = program.graph_signature
        self.targets = {**spec.inputs_to_parameters, **spec.inputs_to_buffers}
        trained = {name for name, parameter in program.named_parameters() if parameter.requires_grad}
        self._trained = {name for name, target in spec.inputs_to_parameters.items() if target in trained}
        reached = _users(program)
        self.used = {self.targets[name] for name in reached if name in self.targets}
        self.mutated = set(spec.buffers_to_mutate.values())
        self.norms = []       # (running mean's full name or None, training) in the graph's order
        self.dropouts = []    # (ratio, active) in the order in which the translation writes Dropout nodes
        self.lost = []        # what ends gradients, and no ONNX graph has
        self.random = []      # what draws random numbers and is no dropout
        for node in program.graph.nodes:
            if node.op != "call_function":
                continue
            name = getattr(getattr(node.target, "_schema", None), "name", "").removeprefix("aten::")
            self._node(node, name)

    def _ends_gradient(self, node):
        """Whether a gradient would flow through a node: floats lead from a trained parameter to it, and on to an output."""
        comes = any(source.name in self._trained for source in _along_floats(node, lambda one: one.all_input_nodes))
        return comes and any(user.op == "output" for user in _along_floats(node, lambda one: one.users))

    def _node(self, node, name):
        args = node.args
        if name == "native_dropout":
            self.dropouts.append((args[1], args[2] is not False))
        elif name == "dropout":
            self.dropouts.append((args[1], args[2] is not False))
        elif name == "scaled_dot_product_attention":
            ratio = args[4] if len(args) > 4 else node.kwargs.get("dropout_p", 0.0)
            self.dropouts += [(ratio, True)] if ratio else []
        elif name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            layers, ratio, train = args[4], args[5], args[6]
            self.dropouts += [(ratio, bool(train))] * (layers - 1) if ratio else []
        elif name in ("detach", "detach_"):
            if "detach()" not in self.lost and self._ends_gradient(node):
                self.lost.append("detach()")
        elif name in TRAINING_NORMS and "no_stats" not in str(node.target):
            mean = args[3] if len(args) > 3 else None
            known = self.targets.get(getattr(mean, "name", None))
            if known:
                self.norms.append((known, args[5]))
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            self.random.append(f"forward: aten.{name}")
        elif name == "_native_batch_norm_legit_no_training" and getattr(args[3], "name", None) in self.targets:
            self.norms.append((self.targets[args[3].name], False))
