"""Random splits for memory.py --search: what `cleave compile` is given, drawn from a seed.

    draw(random.Random("1 gpt2_tiny 0"), batch=4, has_experts=False)
    -> devices 4, flags --mesh dp=2,pp=2 --schedule zb-h2 --microbatches 4, overrides precision=bf16, ..., limit 0.62

Every choice that is not drawn is left to the search, whole splits too. What is seldom used is drawn as often as the rest.
"""
import dataclasses

DEVICES = (1, 2, 2, 3, 4, 4, 4, 4, 6, 8, 8, 8)
ONE_STAGE = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p", "pipedream-2bw")
SCHEDULES = (*ONE_STAGE, "interleaved:2", "interleaved:3", "looped-bfs", "zb-v", "dualpipev")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "adagrad", "lamb", "lion", "adafactor", "muon")
PRESETS = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "megatron", "megatron-2021", "megatron-sp", "ulysses", "ring", "2d", "2.5d",
           "3d", "zero2-offload", "zero3-offload")
RECOMPUTE = ("none", "selective", "full", "full:except-last", "selective:except-last")


@dataclasses.dataclass
class Split:
    devices: int
    flags: list  # of `cleave compile`, the split's
    overrides: list  # of the recipe, for --set
    limit: float  # of a device's memory, in parts of what the same needs without a limit; 0: none


def optimizer(random):
    kind = random.choice(OPTIMIZERS)
    if kind == "momentum":
        return "optimizer={kind: sgd, lr: 0.01, momentum: 0.9}"
    return "optimizer={kind: %s, lr: 0.01}" % kind


def mesh(random, devices, has_experts):
    """Sizes of the axes that multiply to so many devices; dp takes what the others leave."""
    sizes, left = {}, devices
    axes = ["pp", "tp", "ep"] if has_experts else ["pp", "tp", "cp"]
    for axis in random.sample(axes, random.choice((1, 2, 2, 3))):
        size = random.choice([n for n in range(1, left + 1) if left % n == 0])
        if size > 1 and random.random() < (1 if axis == "pp" else 0.7):
            sizes[axis] = size
            left //= size
    if left > 1:
        sizes["dp"] = left
    return sizes


def pipeline(random, stages):
    kind = random.choice(SCHEDULES)
    least = 2 * stages if kind in ("zb-v", "dualpipev") else stages
    microbatches = random.choice((1, 2, stages, least, 2 * stages, 2 * least, least + 1))
    return ["--schedule", kind, "--microbatches", str(microbatches)]


def draw(random, batch, has_experts):
    split = Split(random.choice(DEVICES), [], [], 0)
    has_stages = False
    way = random.random()
    if way < 0.6:
        sizes = mesh(random, split.devices, has_experts)
        has_stages = sizes.get("pp", 1) > 1
        if sizes:
            split.flags += ["--mesh", ",".join(f"{axis}={size}" for axis, size in sizes.items())]
        if has_stages:
            split.flags += pipeline(random, sizes["pp"])
        elif random.random() < 0.5:
            split.flags += ["--microbatches", str(random.choice((1, 2, 4)))]
        if sizes.get("dp", 1) > 1 and random.random() < 0.8:
            split.flags += ["--zero", str(random.choice((0, 1, 2, 3)))]
        if sizes.get("tp", 1) > 1 and random.random() < 0.2:
            split.flags += ["--sequence-parallel"]
    elif way < 0.75:
        split.flags += ["--like", random.choice(PRESETS)]
        if random.random() < 0.5:
            split.flags += ["--microbatches", str(random.choice((1, 2, 4)))]
    if random.random() < 0.6:
        split.flags += ["--recompute", random.choice(RECOMPUTE if has_stages else RECOMPUTE[:3])]
    if random.random() < 0.3:
        split.flags += ["--offload", random.choice(("none", "optimizer", "activations", "all"))]
    split.overrides.append("precision=" + random.choice(("fp32", "bf16", "fp16")))
    if random.random() < 0.8:
        split.overrides.append(optimizer(random))
    if random.random() < 0.5:
        split.overrides.append("clip_norm=" + random.choice(("1.0", "null")))
    split.overrides.append("dims={batch: %d}" % (batch * random.choice((1, 1, 2, 4, 8))))
    if random.random() < 0.5:
        split.limit = round(random.uniform(0.3, 1.1), 3)
    return split
