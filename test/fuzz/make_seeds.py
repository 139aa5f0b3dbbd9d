#!/usr/bin/env python3
"""Writes the golden inputs as inputs of the fuzz targets: what corpora/ was minimised from (docs/internals/testing.md).

    make_seeds.py FOLDER [--cleave build/bin/cleave]     FOLDER/TARGET/...; with --cleave also plans, problems, snapshots
"""
import argparse
import hashlib
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

TEST = pathlib.Path(__file__).resolve().parent.parent
MODELS = TEST.parent / "models"
LARGEST = {"onnx": 8192}  # bytes of a seed
USUALLY = 24576

# A model of test/cli/Inputs/make_models.py, its loss, how it is split.
PLANS = {
    "zero": ("chain", "mse", "--cluster cpu:2 --mesh dp=2 --zero 1"),
    "interleaved": ("unet", "mse", "--cluster cpu:2 --mesh pp=2 --schedule interleaved:2 --microbatches 4"),
    "zb-v": ("seq2seq", "softmax_cross_entropy", "--cluster cpu:4 --mesh pp=2,dp=2 --schedule zb-v --microbatches 4"),
    "tensor": ("chain", "mse", "--cluster cpu:2 --mesh tp=2"),
}


class Seeds:
    def __init__(self, folder):
        self.folder, self.seen = folder, set()

    def add(self, target, data, name=None):
        if len(data) > LARGEST.get(target, USUALLY) or (target, data) in self.seen:
            return
        to = self.folder / target
        to.mkdir(parents=True, exist_ok=True)
        self.seen.add((target, data))
        (to / (name or hashlib.sha1(data).hexdigest())).write_bytes(data)


def joined(parts):
    """As joinParts of input_file.h."""
    return b"".join(struct.pack("<I", len(part)) + part for part in parts[:-1]) + parts[-1]


def npy(array):
    stream = io.BytesIO()
    numpy.save(stream, array)
    return stream.getvalue()


def npz(save, **arrays):
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


def texts(seeds):
    for path in [*TEST.rglob("*.yaml"), *MODELS.rglob("*.yaml")]:
        seeds.add("cluster" if "clusters" in path.parts else "recipe", path.read_bytes())
    for path in (TEST / "unit" / "schedule" / "torch").glob("*.csv"):
        seeds.add("schedule", path.read_bytes())
    seeds.add("schedule", b"0F0,0F1,,0B0,0F2,0B1,,0B2\n,1F0,1B0,1F1,1B1,1F2,1B2\n")


def models(seeds):
    for path in [*TEST.rglob("*.onnx"), *MODELS.rglob("*.onnx")]:
        if "training_info" in path.parts:
            seeds.add("training_info", path.read_bytes())
        elif "artifacts" not in path.parts:
            seeds.add("onnx", path.read_bytes())
    for folder in (TEST / "golden" / "artifacts").iterdir():
        parts = [sorted(folder.glob(f"*{name}")) for name in
                 ("eval_model.onnx", "training_model.onnx", "optimizer_model.onnx", "checkpoint")] if folder.is_dir() else []
        if parts and all(parts):
            seeds.add("artifacts", joined([part[0].read_bytes() for part in parts]))
    random = numpy.random.default_rng(0)
    for size in (16, 32, 64, 128, 256):
        for _ in range(4):
            seeds.add("operators", random.bytes(size))


def data(seeds):
    x, labels = numpy.arange(12, dtype=numpy.float32).reshape(3, 4), numpy.arange(3)
    for save in (numpy.savez, numpy.savez_compressed):
        seeds.add("arrays", npz(save, x=x, labels=labels))
        seeds.add("arrays", npz(save, x=x.astype(numpy.float16), labels=labels.astype(numpy.int32)))
    for kind in (numpy.float32, numpy.float64, numpy.int8, numpy.uint16, numpy.uint64, numpy.bool_):
        seeds.add("arrays", joined([npy(x.astype(kind)), npy(labels)]))
    seeds.add("arrays", joined([npy(x.reshape(3, 1, 4)), npy(labels.astype(numpy.int16)[:, None])]))
    positions, offsets = numpy.zeros((9, 2), numpy.float32), numpy.array([0, 2, 5, 9])
    seeds.add("arrays", npz(numpy.savez, x=positions, labels=numpy.arange(9), offsets=offsets))
    seeds.add("arrays", joined([npy(positions), npy(offsets)]))
    tokens = numpy.arange(40)
    for way, kind in enumerate((numpy.uint16, numpy.int32, numpy.int64)):
        seeds.add("tokens", bytes([way]) + tokens.astype(kind).tobytes())
    for kind in (numpy.uint16, numpy.int64):
        seeds.add("tokens", bytes([3]) + npy(tokens.astype(kind)))
    seeds.add("tokens", bytes([4]) + "To be, or not to be: that is the question. Ä€😀\n".encode())
    texts = numpy.array([3, 2, 1, 7, 1, 1, 4, 0, 5, 6, 7, 8, 9, 0, 2])
    seeds.add("tokens", bytes([6]) + texts.astype(numpy.int32).tobytes())
    seeds.add("tokens", bytes([7]) + npy(texts))
    seeds.add("tokens", bytes([5]) + bytes([7]) + bytes(3072))
    for way, kind in (((20240520, 1, 40), numpy.uint16), ((20240801, 7, 40), numpy.uint32)):
        seeds.add("tokens", bytes([8]) + numpy.array(way + 253 * (0,), numpy.int32).tobytes() + tokens.astype(kind).tobytes())
    lengths, documents = numpy.array([3, 20, 17], numpy.int32), numpy.array([0, 1, 3])
    for way, code, kind in ((9, 8, numpy.uint16), (10, 4, numpy.int32)):
        pointers = (lengths.cumsum() - lengths) * numpy.dtype(kind).itemsize
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 3, 3) + lengths.tobytes() + pointers.tobytes() + documents.tobytes()
        seeds.add("tokens", bytes([way]) + joined([index, tokens.astype(kind).tobytes()]))
    for path in (TEST / "golden" / "images" / "pictures").rglob("*.*"):
        seeds.add("images", path.read_bytes())


# Fields of plan.proto's Plan: kernel_object, report_json, reference_graph, recipe_yaml, cluster_yaml, model_path, padded_graph.
UNREAD = (5, 9, 10, 11, 12, 13, 22)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def what_is_verified(plan):
    """The message of a plan file without what the static verifier does not read."""
    kept, at = b"", 40
    while at < len(plan):
        begin = at
        tag, at = varint(plan, at)
        if tag & 7 == 0:
            _, at = varint(plan, at)
        else:  # the message has no other fields than these two kinds
            length, at = varint(plan, at)
            at += length
        if tag >> 3 not in UNREAD:
            kept += plan[begin:at]
    return kept


def fields_of(plan, number):
    at = 40
    while at < len(plan):
        tag, at = varint(plan, at)
        length, after = varint(plan, at)
        if tag & 7:
            after += length
            if tag >> 3 == number:
                yield plan[after - length:after]
        at = after


def compiled(seeds, cleave):
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for name, (model, loss, split) in PLANS.items():
            onnx, recipe, plan, problem = (work / f"{name}.{end}" for end in ("onnx", "yaml", "plan", "problem"))
            recipe.write_text("dims: {batch: 8}\nloss: {kind: %s}\noptimizer: {kind: adamw, lr: 0.01}\nclip_norm: 1.0\n"
                              "data: {kind: synthetic}\n" % loss)
            subprocess.run([sys.executable, TEST / "cli" / "Inputs" / "make_models.py", model, onnx], check=True)
            subprocess.run([cleave.resolve(), "compile", onnx.name, "--recipe", recipe.name, *split.split(), "-o", plan.name,
                            "--problem", problem.name], check=True, stdout=subprocess.DEVNULL, cwd=work)
            seeds.add("plan", what_is_verified(plan.read_bytes()))
            seeds.add("problem", problem.read_bytes())
            for target, number in (("recipe", 11), ("cluster", 12)):
                for text in fields_of(plan.read_bytes(), number):
                    seeds.add(target, text)


def checksum(data):
    """As runtime/base/checksum.h has it."""
    import xxhash  # of PyPI; for these seeds alone
    return xxhash.xxh3_128_hexdigest(data)


def safetensors(values, begin):
    header = json.dumps({"__metadata__": {"__run__": "r", "w": begin + " " + checksum(values.tobytes())},
                         "w": {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, values.nbytes]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header, values.tobytes()


def snapshot(rows, columns, axis, begins):
    values = numpy.arange(rows * columns, dtype=numpy.float32).reshape(rows, columns)
    files = [safetensors(half, begin) for half, begin in zip(numpy.split(values, 2, axis), begins)]
    tensor = {"dtype": "f32", "shape": values.shape, "original_shape": values.shape, "aliases": ["v"], "role": "PARAMETER"}
    if axis:
        tensor["pieces"] = [{"name": f"w.{i}", "original_shape": [columns]} for i in range(rows)]
    manifest = {"format": 2, "step": 3, "data": {"epoch": 0, "position": 24}, "seed": 7, "fingerprint": "00ff",
                "model": "/m.onnx", "model_digest": "", "recipe": "", "ranks": 2, "run": "r", "tensors": {"w": tensor},
                "files": [{"bytes": len(header) + len(data), "checksum": checksum(header)} for header, data in files]}
    manifest["checksum"] = checksum(json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode())
    return joined([json.dumps(manifest, indent=1).encode(), *(header + data for header, data in files)])


def handshakes(seeds):
    """Bytes that begin as a handshake does (handshake.h), and changes of those on their way."""
    magic, version = 0x434C5643, 3
    hello = struct.pack("<IIiiiiI", magic, version, 3, 0, 2, 4, 4242) + bytes(80)
    proof = struct.pack("<I", magic) + bytes(32)
    seeds.add("handshake", b"\0" + hello + proof)
    seeds.add("handshake", b"\1" + struct.pack("<IIii", magic, version, 0, 4) + bytes(80) + struct.pack("<II", magic, 0) + bytes(32))
    seeds.add("handshake", b"\2")
    seeds.add("handshake", b"\2" + bytes([0, 8, 1, 1, 100, 255]))


def faults(seeds):
    """Inputs that found something, by what it was."""
    seeds.add("recipe", b"dims: {batch: }\nloss: {kind: mse}\n", "dimension_without_size")
    seeds.add("schedule", b"0F0,0B0\n,\n", "rank_without_action")
    seeds.add("tokens", b"\x04ab\x80cdefghijkl", "no_utf8")
    seeds.add("arrays", joined([npy(numpy.zeros((0, 4), numpy.float32)), npy(numpy.zeros(0, int))]), "no_samples")
    seeds.add("snapshot", snapshot(4, 6, 0, ["0,0", f"{2**63 - 1},0"]), "box_beyond_numbers")
    archive = bytearray(npz(numpy.savez, x=numpy.zeros((64, 4), numpy.float32)))
    end = archive.rindex(b"PK\x05\x06")
    entry = archive.index(b"PK\x01\x02")
    twice = archive[:end] + archive[entry:end] + archive[end:]
    struct.pack_into("<HHI", twice, len(twice) - 14, 2, 2, 2 * (end - entry))
    seeds.add("arrays", bytes(twice), "entries_share_bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cleave", type=pathlib.Path)
    args = parser.parse_args()
    seeds = Seeds(args.folder)
    texts(seeds)
    models(seeds)
    data(seeds)
    seeds.add("snapshot", snapshot(4, 6, 0, ["0,0", "2,0"]))
    seeds.add("snapshot", snapshot(2, 6, 1, ["0,0", "0,3"]))
    handshakes(seeds)
    faults(seeds)
    if args.cleave:
        compiled(seeds, args.cleave)
    print(f"{len(seeds.seen)} inputs")


if __name__ == "__main__":
    main()
