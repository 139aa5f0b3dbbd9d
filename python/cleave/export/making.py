"""One export from beginning to end: trace, write, put into training form, find the tensors, state."""
import contextlib
import os

import onnx
import torch

from cleave._tool import CleaveError
from cleave.export import dynamo, torchscript
from cleave.export.batch_sizes import batch_sizes, has_batch, worded
from cleave.export.every_expert import EveryExpert, is_neutral
from cleave.export.example import Example
from cleave.export.forms import exportable, flat_outputs, norms, train, unchanged
from cleave.export.graph import Graph
from cleave.export.holding import Search, distinct
from cleave.export.randomness import RandomDraws
from cleave.export.statement import make, named_tensors, ties, write
from cleave.export.training_form import active_dropouts, keep_dropouts, keep_norms, refuse_random, refuse_unfit
from cleave.export.weightless import fake_parameters, has_numbers, refuse_meta

MAX_UNUSED_BYTES = 1 << 28  # larger ones would fill the 2 GiB of a file


class Making:
    def __init__(self, module, example, kwargs, path, dynamic, exporter, weights, batch):
        self.module, self.path, self.exporter, self.weights = module, path, exporter, weights
        self.example, self.dynamic, self.batch = Example(example, kwargs), dynamic, batch
        self.remarks, self.lost, self.facts = [], [], None
        self.changed = set()  # buffers that a forward pass changes
        self.batches = None  # the sizes that the graph is right for, as batch_sizes.py writes them

    def run(self, input_names, output_names):
        module = self.module
        if self.example.batch is None:
            self.dynamic = False
        refuse_meta(module, self.weights)
        with unchanged(module), exportable(module, self.remarks), flat_outputs(module) as outputs, contextlib.ExitStack() as stack:
            train(module, self.remarks)
            refuse_unfit(module)
            if self.weights:
                draws = self._draws()
                refuse_random(draws.others)
                self._write(self.path)
            else:
                stack.enter_context(fake_parameters(module))
                self._write(self.path)
                refuse_random(self.facts.random)
                self.remarks.append("exported without weights, so that no step can be compared with the module's")
            graph = self._graph(self.path)
            self._name(graph, input_names, output_names or outputs)
            tensors = named_tensors(module)
            if self.exporter == "torchscript":
                torchscript.restore_buffers(graph, dict(module.named_buffers()))
            held = self._held(graph, tensors)
            self._refuse_lost(tensors, held)
            self._keep_unused(graph, tensors, held)
            self._keep_norms(graph, held)
            if self.facts:
                keep_dropouts(graph, self.facts.dropouts)
            active = active_dropouts(graph)
            if self.weights:
                self._refuse_dropouts(active, draws)
            if self.batches is not None:
                self.remarks.append("forward takes another way for other batch sizes: exported for batches of "
                                    f"{worded(self.batches)}" + ("" if self.batch else "; batch=N exports it for N"))
            statement = make(module, tensors, held, norms(module, remove_duplicate=False), active, self.lost, self.remarks,
                             self.exporter, self.batches, self.changed)
        write(graph.model, statement)
        onnx.save(graph.model, str(self.path))
        return statement

    def _draws(self):
        buffers = dict(self.module.named_buffers())
        before = {name: buffer.detach().clone() for name, buffer in buffers.items()}
        with unchanged(self.module), torch.no_grad(), RandomDraws(self.module) as draws:
            self.module(*self.example.args, **self.example.kwargs)
            self.changed = {name for name, buffer in buffers.items() if not torch.equal(buffer, before[name])}
        return draws

    def _write(self, path):
        """Writes the ONNX graph by the exporter that can: torch.export, TorchScript, torch.export with a fixed batch."""
        failures = []
        for exporter, dynamic in self._ways():
            try:
                example, self.batches = self._by_dynamo(path, dynamic) if exporter == "dynamo" else \
                    self._by_torchscript(path, dynamic)
            except Exception as error:  # exporters raise what they like
                failures.append(f"{'torch.export' if exporter == 'dynamo' else 'TorchScript'}: {first_line(error)}")
                continue
            self.example = example
            if dynamic != self.dynamic:
                self.remarks.append(f"exported for a batch of {example.batch} alone: {failures[0]}")
            elif failures:
                self.remarks.append(f"exported by TorchScript, since another way failed: {failures[0]}")
            self.exporter, self.dynamic = exporter, dynamic
            return
        raise CleaveError(f"{type(self.module).__name__} cannot be exported: {'; '.join(dict.fromkeys(failures))}", 1)

    def _examples(self, dynamic):
        """The example, and the one of the training's batch, for a forward that distinguishes the sizes."""
        trained = [self.example.resized(self.batch)] if self.batch and self.example.batch not in (None, self.batch) else []
        return [self.example, *trained] if dynamic else trained or [self.example]

    def _by_dynamo(self, path, dynamic):
        """(the example that was traced, the batch sizes that the graph is right for)."""
        for example in self._examples(dynamic):
            program = self._traced(example, dynamic)
            right = batch_sizes(program, example) if dynamic else None
            if has_batch(right, self.batch or example.batch):
                break
        self.facts = dynamo.Facts(dynamo.translated(program, path))
        return example, right

    def _traced(self, example, dynamic):
        """As the module is when it is exported, else as it is when it runs, else with loops over all experts."""
        try:
            return dynamo.traced(self.module, example, dynamic)
        except Exception as error:  # exporters raise what they like
            failure = error
        try:
            return dynamo.traced(self.module, example, dynamic, dynamo.as_it_runs)
        except Exception:
            if not self.weights or not is_neutral(self.module, example):
                raise failure from None
        program = dynamo.traced(self.module, example, dynamic, dynamo.as_it_runs, EveryExpert)
        remark = ("a loop over the experts that tokens chose was exported as one over all experts: an expert without tokens has a "
                  "gradient of zeros, where PyTorch has none, so that its momentum and weight decay go on")
        self.remarks += [remark] if remark not in self.remarks else []
        return program

    def _by_torchscript(self, path, dynamic):
        """As _by_dynamo. A trace does not tell which sizes forward distinguishes: it is compared with one of another size."""
        def write(example, path):
            with unchanged(self.module):  # tracing runs the module
                return torchscript.translated(self.module, example, example.names(self.module), path, dynamic)
        self.facts = None
        example, *trained = self._examples(dynamic)
        lines = write(example, path)
        if not dynamic:
            return example, None
        if lines and self.batch is None:
            told = f"Python reads sizes in {lines[0]}: the graph keeps what it does there for a batch of {example.batch}"
            self.remarks += [told] if told not in self.remarks else []
        second = trained[0] if trained else example.resized(example.batch + 1)
        with self._beside(path) as other:
            try:
                write(second, other)
                graphs = [self._graph(one).model.graph for one in (path, other)]
                if torchscript.computes_the_same(*graphs, dict(self.module.named_buffers())):
                    return example, None
            except Exception:
                if trained:
                    raise
        if trained:
            write(second, path)
            example = second
        return example, [[example.batch, example.batch, 1]]

    @staticmethod
    @contextlib.contextmanager
    def _beside(path):
        """The path of a file that is there for a while."""
        other = path.with_name(path.name + ".beside")
        try:
            yield other
        finally:
            for file in (other, other.with_name(other.name + ".data")):
                if file.exists():
                    os.remove(file)

    def _ways(self):
        """(exporter, whether the batch is open), in the order in which they are tried."""
        exporters = [self.exporter] if self.exporter else ["dynamo", "torchscript"] if self.weights else ["dynamo"]
        open_batch = [(exporter, True) for exporter in exporters] if self.dynamic else []
        return open_batch + [(exporter, False) for exporter in exporters]

    @staticmethod
    def _graph(path):
        model = onnx.load(str(path), load_external_data=False)
        if model.functions:
            from onnx import inliner
            model = inliner.inline_local_functions(model)
        return Graph(model, path.parent)

    def _name(self, graph, input_names, output_names):
        """Inputs are called as forward's parameters, outputs as the keys of what it returns, and the batch `batch`."""
        inputs = [value.name for value in graph.model.graph.input if value.name not in graph.initializers]
        wanted = input_names or self.example.names(self.module)
        if len(wanted) != len(inputs):
            raise CleaveError(f"the graph has the inputs {', '.join(inputs)}, and {', '.join(wanted)} are wanted", 1)
        outputs = [value.name for value in graph.model.graph.output]
        named = [(old, f"{new}_out" if new in wanted else new) for old, new in zip(outputs, output_names) if new]
        graph.rename_values({**dict(zip(inputs, wanted)), **dict(named)})
        if self.dynamic:
            first = {value.name: value for value in graph.model.graph.input}
            for name, leaf in zip(wanted, self.example.ordered(self.module)):
                if self.example.is_batched(leaf):
                    graph.rename_sizes({first[name].type.tensor_type.shape.dim[0].dim_param: "batch"})

    def _held(self, graph, tensors):
        tied = ties(tensors)
        search = Search(graph)
        held = search.held({name: tensor for name, tensor in tensors.items() if name not in tied or name in graph.initializers})
        if search.ambiguous:
            held.update(self._held_by_perturbing(tensors, search.ambiguous))
        for later, first in tied.items():  # exporters name a tied tensor by any of its names; it is held by the first
            if not held.get(first):
                held[first] = held.pop(later, [])
        return held

    def _held_by_perturbing(self, tensors, names):
        """Exports once more with random numbers in these tensors: the initializers that move hold them."""
        facts = self.facts
        try:
            with distinct([tensors[name] for name in names]), self._beside(self.path) as other:
                self._write(other)
                search = Search(self._graph(other))
                return search.held({name: tensors[name] for name in names})
        finally:
            self.facts = facts

    def _refuse_lost(self, tensors, held):
        """A tensor that the graph does not hold must be one that the outputs do not depend on."""
        tied = ties(tensors)
        for name, tensor in tensors.items():
            if held.get(name) or name in tied or not tensor.numel():
                continue
            others = [other for other, first in tied.items() if first == name]
            used = name in self.facts.used or any(other in self.facts.used for other in others) if self.facts else \
                tensor.is_floating_point() and self._moves_outputs(tensor)
            if used:
                raise CleaveError(f"{name}: the exporter lost it: its numbers are nowhere in the graph, and the outputs depend "
                                  "on it", 1)
        statistics = {f"{name}.{part}".lstrip(".") for name, _ in norms(self.module)
                      for part in ("running_mean", "running_var", "num_batches_tracked")}
        self.changed = (self.facts.mutated if self.facts else self.changed) - statistics
        for name in sorted(self.changed):
            if name in self.facts.used if self.facts else self._moves_outputs(tensors[name]):
                raise CleaveError(f"{name}: forward changes this buffer and reads it again; an exported graph would keep "
                                  "its first numbers", 1)
            self.remarks.append(f"{name}: forward changes this buffer, which the outputs do not depend on; training by Cleave "
                                "does not change it")
        if self.facts:
            self.lost += self.facts.lost
            self.remarks += [f"forward uses {what}: the graph has none, and gradients flow there" for what in self.facts.lost]

    def _keep_unused(self, graph, tensors, held):
        """What the outputs do not depend on becomes an initializer without a reader, so that the weights are whole."""
        tied, persistent, unused = ties(tensors), self.module.state_dict(keep_vars=True), []
        for name, tensor in tensors.items():
            kept = held.get(name) or name in tied or name not in persistent or not tensor.numel()
            if kept or not has_numbers(tensor) or name in graph.initializers or tensor.nbytes > MAX_UNUSED_BYTES:
                continue
            if isinstance(tensor, torch.nn.Parameter):
                unused.append(name)
            elif tensor.numel() == 1:
                continue  # the statement has the number
            held[name] = [{"initializer": graph.add_initializer(name, tensor), "form": "as_is"}]
        if unused:
            names = ", ".join(unused[:4]) + (f" and {len(unused) - 4} more" if len(unused) > 4 else "")
            self.remarks.append(f"{names}: forward does not use {'it' if len(unused) == 1 else 'them'}, and nothing trains there")

    def _moves_outputs(self, tensor):
        def outputs():
            with torch.no_grad(), unchanged(self.module), RandomDraws(self.module):
                return self.module(*self.example.args, **self.example.kwargs)
        before = outputs()
        if tensor.is_floating_point():
            with distinct([tensor]):
                after = outputs()
        else:  # a counter
            kept = tensor.clone()
            tensor.logical_not_() if tensor.dtype == torch.bool else tensor.add_(1)
            after = outputs()
            tensor.copy_(kept)
        return any(not torch.equal(a, b) for a, b in zip(before, after))

    def _keep_norms(self, graph, held):
        names = {place["initializer"]: name for name, places in held.items() for place in places}
        kept = keep_norms(graph, self.module, names)
        if self.facts:
            for mean, training in self.facts.norms:
                name = mean.removesuffix("running_mean").rstrip(".")
                if training and name not in kept:
                    raise CleaveError(f"{name}: the exporter wrote this norm without its running statistics", 1)

    def _refuse_dropouts(self, active, draws):
        """The graph must drop what the forward pass drops."""
        want = sorted(ratio for _, ratio, _ in draws.dropouts)
        have = sorted(active)
        if len(want) != len(have) or any(abs(a - b) > 1e-5 for a, b in zip(want, have)):
            where = sorted({name for name, _, _ in draws.dropouts if name})
            raise CleaveError(f"{', '.join(where) or type(self.module).__name__}: forward has dropouts of {want}, and the "
                              f"exporter wrote {have}; replace the others by nn.Dropout, or set their ratio to 0", 1)


def first_line(error):
    text = str(error).strip() or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [lines[at + 1] for at, line in enumerate(lines[:-1]) if line.startswith("## Exception summary")]
    return (causes or lines)[0].partition(" Please feel free")[0][:240]
