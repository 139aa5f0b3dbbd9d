"""Rows of measured runs, as requests to price_rows and what was measured.

    for row in training_rows(folder): row.request, row.seconds, row.is_calibration

Every third row of a file (the third, the sixth, ...) is for calibration; the others only validate.
"""
import csv
import dataclasses

# Model shapes of the Megatron-Core r0.8 runs, which the table of results names by size only: layers, hidden size and
# heads from the project's page. Its runs use selective recomputation's fused attention, sequence parallelism and a
# distributed optimizer; of the micro batch size nothing is said.
CORE_SHAPES = {"1.7": (24, 2048, 16), "7.1": (30, 4096, 32), "16": (32, 6144, 48), "32": (48, 7168, 56),
               "70": (84, 8192, 64), "119": (92, 10240, 80), "177": (96, 12288, 96), "314": (96, 16384, 128),
               "462": (112, 18432, 144)}
VTRAIN_VOCABULARY = 51200
# Profiles of docs/reference/cluster.md: what the published runs ran.
OLD, CORE = "megatron-2021", "megatron-core-2024"
# 800 Gb/s between nodes of eight: a device's share.
VTRAIN_NETWORK_GBPS = 100


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int
    precision: str = "fp16"

    @property
    def name(self):
        return f"{self.layers}x{self.hidden} s{self.seq} v{self.vocab} {self.precision}"

    def flops(self, batch):
        """Of a step with full recomputation: Narayanan et al. 2021, equation 3, 96 B s l h^2 (...)."""
        l, h, s = self.layers, self.hidden, self.seq
        return 96 * batch * s * l * h * h * (1 + s / (6 * h) + self.vocab / (16 * l * h))

    def model_flops(self, batch):
        """Without recomputation."""
        l, h, s = self.layers, self.hidden, self.seq
        return 72 * batch * s * l * h * h * (1 + s / (6 * h) + self.vocab / (12 * l * h))


@dataclasses.dataclass
class Row:
    source: str
    number: int  # in its file, from 1
    model: Model
    devices: int
    request: dict
    seconds: float
    is_calibration: bool
    label: str
    predicted: dict = dataclasses.field(default_factory=dict)

    @property
    def software(self):
        return self.request["cluster"][-1]

    @property
    def error(self):
        return self.predicted["seconds"] / self.seconds - 1


def read(folder, name):
    with open(folder / name, newline="") as file:
        return list(csv.DictReader(file))


def numbered(folder, name):
    """Rows with their numbers, from 1; a sample of a file gives those of the whole file in a column "row"."""
    for number, row in enumerate(read(folder, name), 1):
        yield int(row.pop("row", number)), row


def is_calibration(number):
    return number % 3 == 0


def split_request(model, batch, micro, tp, dp, pp, vpp=1, recompute="full", sequence=False, zero="0"):
    request = {"model": model, "batch": batch, "mesh": f"pp={pp},dp={dp},tp={tp}",
               "microbatches": str(batch // (dp * micro)), "recompute": recompute, "zero": zero,
               "schedule": "none" if pp == 1 else "1f1b" if vpp == 1 else f"interleaved:{vpp}",
               "like": "megatron-sp" if sequence else "megatron-2021"}
    stages = pp * vpp
    if pp > 1 and model.layers % stages == 0:
        request["balance"] = ",".join([str(model.layers // stages)] * stages)
    return request


def vtrain_rows(folder, name, source):
    rows = []
    for number, r in numbered(folder, name):
        n = {key: int(value) for key, value in r.items() if key not in ("params_b", "iteration_ms")}
        model = Model(n["layers"], n["hidden"], n["heads"], VTRAIN_VOCABULARY, n["seq"])
        request = split_request(model, n["global_batch"], n["micro_batch"], n["tp"], n["dp"], n["pp"])
        request["cluster"] = ("a100-80g", n["gpus"], VTRAIN_NETWORK_GBPS, OLD)
        rows.append(Row(source, number, model, n["gpus"], request, float(r["iteration_ms"]) / 1e3,
                        is_calibration(number),
                        f"batch {n['global_batch']} micro {n['micro_batch']} tp {n['tp']} dp {n['dp']} pp {n['pp']}"))
    return rows


def published_rows(folder):
    rows = []
    for number, r in numbered(folder, "published_runs.csv"):
        number_of = lambda key, other=0: int(r[key]) if r[key] else other
        core = not r["layers"]
        shape = CORE_SHAPES[r["model_b"]] if core else (number_of("layers"), number_of("hidden"), number_of("heads"))
        model = Model(*shape, number_of("vocab"), number_of("seq"), r["precision"])
        batch, devices = number_of("global_batch"), number_of("gpus")
        request = split_request(model, batch, number_of("micro_batch", 1), number_of("tp"), number_of("dp"),
                                number_of("pp"), number_of("vpp", 1), r["recompute"] or "none",
                                core or r["sequence_parallel"] == "1", "1" if core else "0")
        request["cluster"] = (r["gpu"].lower(), devices, None, CORE if core else OLD)
        if r["metric"] == "seconds":
            seconds = float(r["value"])
        else:
            flops = model.model_flops(batch) if core else model.flops(batch)
            seconds = flops / (float(r["value"]) * 1e12 * devices)
        rows.append(Row("published", number, model, devices, request, seconds, is_calibration(number),
                        f"{r['source']} {r['model_b']}B {request['mesh']} {request['recompute']}"))
    return rows


def all_reduce_rows(folder):
    rows = []
    for number, r in numbered(folder, "allreduce_a100_nvswitch.csv"):
        gpus = int(r["gpus"])
        request = {"cluster": ("a100-80g", gpus, None, OLD), "ranks": gpus, "bytes": float(r["bytes"])}
        rows.append(Row("all-reduce", number, None, gpus, request, float(r["time_ns"]) / 1e9, is_calibration(number),
                        f"{gpus} GPUs {int(r['bytes']) / 1e6:.1f} MB"))
    return rows


def training_rows(folder):
    return (vtrain_rows(folder, "vtrain_a100_single_node.csv", "vtrain single-node") +
            vtrain_rows(folder, "vtrain_a100_multi_node.csv", "vtrain multi-node") + published_rows(folder))


# The ZeRO paper's model of 7.5e9 parameters, of which it gives no shape.
GENERIC = Model(36, 4096, 32, 61440, 1024)


@dataclasses.dataclass
class MemoryRow:
    label: str
    zero: str
    recompute: str
    request: dict
    part: object  # of price_rows' answer, in bytes
    bytes: float  # published
    rounding: float  # half of its last digit
    predicted: dict = dataclasses.field(default_factory=dict)


def memory_rows(folder):
    """What a device holds."""
    states = lambda memory: memory["parameters"] + memory["gradients"] + memory["optimizer"]
    parts = {"model_states": lambda a: states(a["memory"]), "parameters_and_optimizer": lambda a: states(a["stages"][0]),
             "activations_first_stage": lambda a: a["stages"][0]["activations"], "peak": lambda a: a["memory"]["total"]}
    rows = []
    # Alpa scatters gradients over the data parallel devices and updates a shard on each, which is ZeRO-1 here: 16 bytes a
    # parameter would be 10.6 GB a device, more than the whole peak that it measured.
    zero = lambda r: "1" if r["source"] == "alpa" else r["zero"] or "0"
    for number, r in numbered(folder, "memory.csv"):
        n = {key: int(r[key]) for key in ("layers", "hidden", "heads", "seq", "vocab", "tp", "pp", "vpp", "dp",
                                          "micro_batch", "microbatches", "zero") if r[key]}
        model = GENERIC
        if "layers" in n:
            # 18 bytes a parameter in the paper's tables: bf16 with gradients summed up in fp32.
            precision = "bf16" if r["source"] == "korthikanti_2022" else "fp16"
            model = Model(n["layers"], n["hidden"], n["heads"], n["vocab"], n["seq"], precision)
        # Of one microbatch gradients have the room of activations; all of them count where they are added up.
        micro, microbatches = n.get("micro_batch", 1), n.get("microbatches", 2 if r["what"] == "model_states" else 1)
        request = split_request(model, n["dp"] * micro * microbatches, micro, n["tp"], n["dp"], n["pp"], n["vpp"],
                                r["recompute"] or "none", r["sequence_parallel"] == "1", zero(r))
        devices = n["tp"] * n["pp"] * n["dp"]
        request["cluster"] = ("v100-16g" if r["source"] == "alpa" else "a100-80g", devices, None, OLD)
        unit = 2.0**30 if r["unit"] == "GiB" else 1e9
        rows.append(MemoryRow(f"{r['source']} {r['params_b']}B | {r['what']}", zero(r), r["recompute"], request,
                              parts[r["what"]], float(r["value"]) * unit,
                              unit * 0.5 * 10.0**-len(r["value"].partition(".")[2])))
    return rows
