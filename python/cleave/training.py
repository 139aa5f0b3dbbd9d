"""Training in this process, by the C library libcleave_runtime.so (cleave_runtime.h has what each function does)."""
import collections
import collections.abc
import ctypes
import json
import os
import pathlib
import tempfile

import numpy as np

from cleave import stores
from cleave._tool import CleaveError, run_tool, tool_path
from cleave.optimizer_state import load_optimizer
from cleave.remote_snapshots import RemoteSnapshots

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "i8": np.int8, "i16": np.int16,
         "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
         "bool": np.bool_}

Metrics = collections.namedtuple("Metrics", "step loss grad_norm learning_rate step_seconds samples_per_second "
                                            "tokens_per_second tflops_per_device peak_bytes_per_device")


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p), ("model", ctypes.c_char_p),
                ("snapshots", ctypes.c_char_p), ("resume", ctypes.c_int), ("threads", ctypes.c_int),
                ("step_timeout", ctypes.c_double), ("trust_keys", ctypes.c_char_p), ("trust_code", ctypes.c_int),
                ("check_weights", ctypes.c_int), ("accept_changes", ctypes.c_int), ("on_lost", ctypes.c_void_p),
                ("on_lost_data", ctypes.c_void_p), ("overwrite", ctypes.c_int), ("meeting_timeout", ctypes.c_double),
                ("local_batches", ctypes.c_int), ("own_snapshots", ctypes.c_int)]


class _Metrics(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("step", ctypes.c_int64)] + [
        (name, ctypes.c_double) for name in Metrics._fields[1:-1]] + [("peak_bytes_per_device", ctypes.c_int64)]


def _library():
    """CLEAVE_LIBRARY, or the library that lies where the command's package put it."""
    places = [os.environ.get("CLEAVE_LIBRARY"), pathlib.Path(tool_path()).resolve().parents[1] / "lib" / "libcleave_runtime.so"]
    for place in places:
        if place and pathlib.Path(place).exists():
            library = ctypes.CDLL(str(place))
            break
    else:
        raise CleaveError("libcleave_runtime.so is not found: CLEAVE_LIBRARY may name it", 2)
    if library.cleave_runtime_version() < 9:
        raise CleaveError("libcleave_runtime.so is older than this module", 2)
    handle, text, sizes = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)
    for name, result, arguments in [
            ("open", handle, [text, ctypes.POINTER(_Options)]), ("close", None, [handle]),
            ("input_name", text, [handle, ctypes.c_int]), ("input_type", text, [handle, ctypes.c_int]),
            ("lengths", ctypes.c_int, [handle]), ("ramped_shape", ctypes.c_int, [handle]),
            ("input_shape_at", ctypes.c_int, [handle, ctypes.c_int, ctypes.c_int, sizes, ctypes.c_int]),
            ("batch", ctypes.c_int64, [handle, ctypes.c_int]),
            ("bind", ctypes.c_int, [handle, text, ctypes.c_void_p, ctypes.c_int64]),
            ("step", ctypes.c_int, [handle, ctypes.POINTER(_Metrics)]), ("steps_done", ctypes.c_int64, [handle]),
            ("bind_evaluation", ctypes.c_int, [handle, text, ctypes.c_void_p, ctypes.c_int64]),
            ("evaluate", ctypes.c_int, [handle, ctypes.c_int64, ctypes.c_int]), ("evaluation", text, [handle]),
            ("parameter_name", text, [handle, ctypes.c_int]), ("parameter_type", text, [handle, text]),
            ("parameter_shape", ctypes.c_int, [handle, text, sizes, ctypes.c_int]),
            ("read_parameter", ctypes.c_int, [handle, text, ctypes.c_void_p, ctypes.c_int64]),
            ("snapshot", ctypes.c_int, [handle]), ("agree", ctypes.c_int, [handle, text]), ("agree_on_more", ctypes.c_int, [handle, ctypes.c_int]),
            ("devices", ctypes.c_int, [handle, sizes, ctypes.c_int]), ("data_path", text, [text]),
            ("check_snapshot", ctypes.c_int, [text]), ("prometheus", text, [handle]),
            ("local_samples", ctypes.c_int, [handle, sizes, ctypes.c_int]),
            ("filled_dimension", ctypes.c_int, [handle, text, ctypes.POINTER(ctypes.c_int), sizes]), ("error", text, [handle]),
            ("error_status", ctypes.c_int, [handle])]:
        function = getattr(library, "cleave_" + name)
        function.restype, function.argtypes = result, arguments
    return library


def _bytes(value):
    return None if value is None else os.fsencode(value)


def _host_array(name, array):
    """What a step gets, as NumPy's array. CleaveError for what has no place in this host's memory, or a gradient."""
    if isinstance(array, np.ndarray):
        return array
    if getattr(array, "requires_grad", False):
        raise CleaveError(f"input {name!r} requires a gradient, and a step gives none to its inputs: pass {name}.detach()", 2)
    try:
        if str(getattr(array, "dtype", "")) == "torch.bfloat16":  # NumPy has no such type
            array = array.float()
        return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)
    except Exception as error:  # NumPy, and others' DLPack, raise what they like
        raise CleaveError(f"input {name!r} is no array: {type(array).__name__}, {error}; give NumPy's, or a tensor on the CPU",
                          2) from None


def _bf16_bits(array):
    """Floats as bf16, rounded to the nearest, in uint16."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def _named(inputs):
    """The arrays by name."""
    if not isinstance(inputs, collections.abc.Mapping):
        raise CleaveError(f"a step takes a dictionary of arrays by the names of the plan's inputs, not {type(inputs).__name__}", 2)
    return inputs


def _numbers(function, *arguments):
    """All numbers of a function that gives how many there are, and the first ones."""
    sizes = (ctypes.c_int64 * 16)()
    count = function(*arguments, sizes, len(sizes))
    if count > len(sizes):
        sizes = (ctypes.c_int64 * count)()
        function(*arguments, sizes, count)
    return tuple(sizes[:max(0, count)])


def _remote(library, url, host=None):
    def check(path):
        return library.cleave_error(None).decode() if library.cleave_check_snapshot(_bytes(path)) else None
    return RemoteSnapshots(url, check, host)


class Trainer:
    """Trains a plan, a step at a time; the GIL is free meanwhile.

    plan: a cleave.Plan or a path. snapshots: folder for save(), or its URL; resume: begin from its newest snapshot; overwrite:
    remove those of another run. data: replaces the recipe's data.path, either may be a URL (fsspec). trust_code: take a plan that
    was compiled elsewhere. Under mpirun, srun or torchrun each process makes a Trainer and is one rank; with local_batches it
    passes its own part of each batch (rank_samples). accept_changes: resume, too, where the model, the loss or the seed is
    another than in the snapshot. meeting_timeout: seconds for all ranks to arrive. on_lost: called at once, on another thread,
    with the reason when another rank ends the step under way; the step raises CleaveError when its threads come back.
    """

    def __init__(self, plan, snapshots=None, resume=False, data=None, model=None, threads=0, step_timeout=0, trust_keys=None,
                 trust_code=False, accept_changes=False, on_lost=None, overwrite=False, local_batches=False, meeting_timeout=0):
        self._handle = None
        self._failure = None  # the last error
        self._library = _library()
        self._plan = plan  # a temporary plan's folder stays
        path = _bytes(getattr(plan, "path", plan))
        wanted = (self._library.cleave_data_path(path) or b"").decode() if data is None else data
        data = stores.fetched(wanted) if stores.is_url(wanted) else data
        self._remote = None
        if stores.is_url(snapshots):
            if resume and overwrite:
                raise CleaveError("resume and overwrite exclude each other", 2)
            self._remote = _remote(self._library, snapshots)
            self._remote.prepare(resume, overwrite)
            snapshots = self._remote.folder
        self.snapshots = snapshots  # the folder on this host; with a URL, of this process
        if not meeting_timeout and (self._remote or stores.is_url(wanted)):
            meeting_timeout = stores.LOCK_SECONDS  # hosts fetch at speeds of their own
        tell = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
        self._on_lost = tell(lambda why, _: on_lost(why.decode())) if on_lost else None  # stays as long as the training
        options = _Options(ctypes.sizeof(_Options), _bytes(data), _bytes(model), _bytes(snapshots), bool(resume), threads,
                           step_timeout, _bytes(trust_keys), bool(trust_code), 0, bool(accept_changes),
                           ctypes.cast(self._on_lost, ctypes.c_void_p) if on_lost else None, None, bool(overwrite),
                           meeting_timeout, bool(local_batches), bool(self._remote))
        self._handle = self._library.cleave_open(path, ctypes.byref(options))
        if not self._handle:
            raise self._error(None)
        self._bound = {}
        self.inputs = {}  # name: (dtype, shape of a step's array, of the longest samples)
        self._most = {}  # name: the dimension of samples and how many a step has, where its array has more places
        self._bf16 = {}  # name: whether its numbers are bf16, whose bits an array of uint16 has
        self._shapes = {}  # name: its shapes, the shortest samples' first
        while name := self._library.cleave_input_name(self._handle, len(self.inputs)):
            at = len(self.inputs)
            shapes = [_numbers(self._library.cleave_input_shape_at, self._handle, at, length)
                      for length in range(self._library.cleave_lengths(self._handle))]
            self._shapes[name.decode()] = shapes
            kind = self._library.cleave_input_type(self._handle, at).decode()
            self._bf16[name.decode()] = kind == "bf16"
            self.inputs[name.decode()] = (TYPES[kind], self._of_samples(name.decode(), shapes[-1]))

    def _of_samples(self, name, places):
        """The shape of a step's array, whose batch may be smaller than its places."""
        is_label, label = ctypes.c_int(), ctypes.c_int64()
        axis = self._library.cleave_filled_dimension(self._handle, name.encode(), ctypes.byref(is_label), ctypes.byref(label))
        samples = self._library.cleave_batch(self._handle, self._library.cleave_lengths(self._handle) - 1)
        if axis < 0 or not 0 < samples < places[axis]:
            return places
        self._most[name] = axis, samples
        return (*places[:axis], samples, *places[axis + 1:])

    def _error(self, handle):
        return CleaveError(self._library.cleave_error(handle).decode(), self._library.cleave_error_status(handle))

    def _check(self, status):
        if not status:
            return
        error = self._error(self._handle)
        if self._failure and "no routine is begun" in str(error):
            raise CleaveError(f"the Trainer ended before: {self._failure}; resume=True of another one goes on from the newest "
                              "snapshot", self._failure.status)
        self._failure = error
        raise error

    def step(self, inputs=None):
        """One optimizer step on these arrays, a global batch each (with local_batches: this process' part); without any on the
        recipe's data. Metrics of the step.

        Arrays are NumPy's, or what has DLPack (torch tensors). One of the right type that is dense is read in place; inputs
        that are left out keep the arrays of the step before. Where the recipe has `data.lengths`, the arrays have one of them;
        with a `ramp`, the sizes of the step's stage. All arrays of a step may have fewer samples, as the last ones of a
        DataLoader, where the losses can ignore labels and no sample sees another: the means are theirs alone.
        """
        if not self._handle:
            raise CleaveError("the Trainer is closed", 2)
        stage = self._library.cleave_ramped_shape(self._handle)
        arrays, share = self._filled({name: self._array(name, array, stage, fills=True) for name, array in _named({} if inputs is None else inputs).items()}, stage)
        for name, array in arrays.items():
            self._check(self._library.cleave_bind(self._handle, name.encode(), array.ctypes.data, array.nbytes))
            self._bound[name] = array  # read during later steps
        metrics = _Metrics(ctypes.sizeof(_Metrics))
        self._check(self._library.cleave_step(self._handle, ctypes.byref(metrics)))
        taken = Metrics(*(getattr(metrics, name) for name in Metrics._fields))
        return taken if share == 1 else taken._replace(samples_per_second=taken.samples_per_second * share,
                                                       tokens_per_second=taken.tokens_per_second * share)

    def evaluate(self, batches=0):
        """The loss and the recipe's `eval.metrics`, without training: {"loss": 0.21, "samples": 512, "metrics": {...}}.

        batches: how many of the samples that the recipe's data holds out are looked at, 0: all; or arrays as step() takes
        them, a dictionary or an iterable of dictionaries, each a global batch. All processes give equally many.
        """
        if not self._handle:
            raise CleaveError("the Trainer is closed", 2)
        if isinstance(batches, int):
            self._check(self._library.cleave_evaluate(self._handle, batches, 0))
        else:
            count, last = 0, -1 if self._library.cleave_ramped_shape(self._handle) < 0 else self._library.cleave_lengths(self._handle) - 1
            for count, batch in enumerate(self._agreed([batches] if isinstance(batches, dict) else batches), 1):
                arrays = {name: self._array(name, array, last) for name, array in _named(batch).items()}
                for name, array in arrays.items():
                    self._check(self._library.cleave_bind_evaluation(self._handle, name.encode(), array.ctypes.data, array.nbytes))
                self._check(self._library.cleave_evaluate(self._handle, 0, int(count > 1)))
            if count == 0:
                raise CleaveError("there is no batch to evaluate", 2)
        return json.loads(self._library.cleave_evaluation(self._handle))

    def _agreed(self, batches):
        """The batches, where all processes have equally many; else CleaveError on all of them at once."""
        batches = iter(batches)
        while True:
            try:
                batch = next(batches, None)
            except BaseException:
                self._library.cleave_agree_on_more(self._handle, 0)  # the others go no further
                raise
            self._check(self._library.cleave_agree_on_more(self._handle, batch is not None))
            if batch is None:
                return
            yield batch

    def _filled(self, arrays, stage):
        """The arrays, of whole batches; and the share of the samples that count."""
        whole = {name: self._shapes[name][stage] for name in arrays}
        if all(array.shape in (self._shapes[name] if stage < 0 else [whole[name]]) for name, array in arrays.items()):
            return arrays, 1
        filled, counts = {}, {}
        for name, array in arrays.items():
            is_label, label = ctypes.c_int(), ctypes.c_int64()
            axis = self._library.cleave_filled_dimension(self._handle, name.encode(), ctypes.byref(is_label), ctypes.byref(label))
            if axis < 0:  # all samples read the same
                filled[name] = array
                continue
            missing = whole[name][axis] - array.shape[axis]
            counts[array.shape[axis]] = name
            more = (np.full((*array.shape[:axis], missing, *array.shape[axis + 1:]), label.value, array.dtype) if is_label.value
                    else np.repeat(array.take([0], axis), missing, axis))
            filled[name] = np.concatenate([array, more], axis)
            share = array.shape[axis] / whole[name][axis]
        left = set(self.inputs) - set(arrays)
        if len(counts) > 1 or left:
            told = [f"{name!r} has {count}" for count, name in counts.items()] + [f"{name!r} is left out" for name in sorted(left)]
            raise CleaveError(f"the inputs of a step have different numbers of samples: {', '.join(told)}", 2)
        return filled, share

    def _fills(self, name, array, shape):
        """Whether the array has fewer samples than `shape`, and why it cannot serve."""
        is_label, label = ctypes.c_int(), ctypes.c_int64()
        differ = [axis for axis in range(len(shape)) if array.ndim == len(shape) and array.shape[axis] != shape[axis]]
        if len(differ) != 1 or not 0 < array.shape[differ[0]] < shape[differ[0]]:
            return False, ""
        axis = self._library.cleave_filled_dimension(self._handle, name.encode(), ctypes.byref(is_label), ctypes.byref(label))
        if axis >= 0:
            return axis == differ[0], ""
        return False, f"; a step of fewer samples cannot be: {self._library.cleave_error(self._handle).decode()}"

    def _array(self, name, array, stage, fills=False):
        """`stage`: of a ramp, which one's array it is; -1: there is no ramp. `fills`: it may have fewer samples."""
        if name not in self.inputs:
            raise CleaveError(f"the plan has no input {name!r}; its inputs are {', '.join(self.inputs)}", 2)
        dtype, _ = self.inputs[name]
        shapes = self._shapes[name] if stage < 0 else [self._shapes[name][stage]]
        array = _host_array(name, array)
        if self._bf16[name] and array.dtype.kind == "f":
            array = _bf16_bits(array)
        axis, most = self._most.get(name, (0, None)) if fills else (0, None)
        if most and array.ndim > axis and array.shape[axis] > most:
            raise CleaveError(f"input {name!r} has shape {self.inputs[name][1]} in the plan and {array.shape} here", 2)
        if array.shape not in shapes:
            known = " or ".join(map(str, dict.fromkeys(shapes)))
            where = "in the plan" if stage < 0 else f"in step {self.steps_done + 1} of the ramp"
            is_smaller, why = self._fills(name, array, shapes[-1]) if fills and len(shapes) == 1 else (False, "")
            if not fills and array.ndim == len(shapes[-1]) and all(0 < a <= b for a, b in zip(array.shape, shapes[-1])):
                why = "; an evaluation takes whole batches"
            if not is_smaller:
                raise CleaveError(f"input {name!r} has shape {known} {where} and {array.shape} here{why}", 2)
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise CleaveError(f"input {name!r} is {np.dtype(dtype)} in the plan and {array.dtype} here", 2)
        return np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)  # of a number, too

    @property
    def rank_samples(self):
        """With local_batches: which samples of the global batch this process passes, in this order. Processes with the same ones
        (of one group of tp or pp) pass equal arrays. Otherwise None: arrays are global batches."""
        return list(_numbers(self._library.cleave_local_samples, self._handle)) or None

    @property
    def is_first(self):
        """Of all processes, the one that tells what all do."""
        return 0 in _numbers(self._library.cleave_devices, self._handle)

    def prometheus(self):
        """The metrics of the latest step, as Prometheus reads them."""
        return (self._library.cleave_prometheus(self._handle) or b"").decode()

    @property
    def steps_done(self):
        return self._library.cleave_steps_done(self._handle)

    def parameters(self):
        """The whole persistent tensors by name: parameters, optimizer state, statistics. bf16 comes as float32."""
        found = {}
        while name := self._library.cleave_parameter_name(self._handle, len(found)):
            kind = self._library.cleave_parameter_type(self._handle, name).decode()
            array = np.empty(_numbers(self._library.cleave_parameter_shape, self._handle, name), TYPES[kind])
            self._check(self._library.cleave_read_parameter(self._handle, name, array.ctypes.data, array.nbytes))
            found[name.decode()] = (array.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else array
        return found

    def save(self):
        """Writes a snapshot into the folder `snapshots`; where that is a URL, it is there whole when this returns."""
        self._save_here()
        if self._remote:
            self._remote.upload(self._newest(), _numbers(self._library.cleave_devices, self._handle), self._agree)

    def _newest(self):
        return f"step-{self.steps_done:08}"

    def _save_here(self):
        if not self._handle:
            raise CleaveError("the Trainer is closed", 2)
        self._check(self._library.cleave_snapshot(self._handle))

    def _agree(self, failure):
        self._check(self._library.cleave_agree(self._handle, None if failure is None else failure.encode()))

    def state_dict(self, **options):
        """PyTorch's state_dict of the module that was exported, by way of a snapshot. Keys are flags of `cleave export`."""
        if self.snapshots is None:
            raise CleaveError("state_dict() writes a snapshot first: give the Trainer a folder of `snapshots`", 2)
        self._save_here()
        if self._remote and not self._remote.has_all(self._newest()):
            raise CleaveError(f"state_dict(): each process has its part only: save(), then load_into(module, {self._remote.url!r})", 2)
        return _state_dict(self.snapshots, options)

    def close(self):
        if self._handle:
            self._library.cleave_close(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


def _state_dict(snapshots, options):
    from cleave.compiling import _flags
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise CleaveError(f"PyTorch's state_dict needs torch and safetensors: {error}", 2) from None
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "weights.safetensors")
        run_tool("export", snapshots, "-o", path, *_flags(options))
        return load_file(str(path))


def load_into(module, snapshots, strict=True, optimizer=None, **options):
    """Loads a snapshot's weights into the torch module that was exported, and its optimizer state into `optimizer`, a torch
    optimizer of the module or several. snapshots: a folder of them or one, or a URL of either. Further keys are flags of
    `cleave export`."""
    if any(parameter.is_meta for parameter in module.parameters()):
        raise CleaveError("the module's weights are on the meta device, which has no memory: build the module without "
                          "without_weights()", 2)
    with tempfile.TemporaryDirectory() as folder:
        if stores.is_url(snapshots):
            snapshots = _remote(_library(), snapshots, pathlib.Path(folder)).fetch()
        state = _state_dict(snapshots, options)
        if optimizer is not None:
            load_optimizer(module, optimizer, snapshots, **{key: value for key, value in options.items() if key == "model"})
    return module.load_state_dict(state, strict=strict)
