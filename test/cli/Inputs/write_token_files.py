"""write_token_files.py FOLDER: the same tokens in every form that `kind: tokens` reads, and as arrays of samples.

    raw.bin                     uint16, alone
    llmc.bin, llama.bin         as llm.c's dev/data/data_common.py writes gpt-2 and llama-3
    meg.bin, meg.idx            as Megatron-LM's IndexedDatasetBuilder: every document but the first is two sequences
    shards/{2,0,10}.bin         three files, whose samples are blocks of 16 tokens of one file
    blocks.npz, sharded.npz     those samples, of the whole and of the shards by name
    documents.bin               uint16; the token 12 ends each document
"""
import pathlib
import struct
import sys

import numpy as np

BLOCK, SEPARATOR, CODES = 16, 12, {"uint8": 1, "int32": 4, "int64": 5, "uint16": 8}


def llmc(path, tokens, magic, version, dtype):
    header = np.zeros(256, dtype=np.int32)
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + np.array(tokens, dtype=dtype).tobytes())


def megatron(prefix, documents, dtype):
    """`documents`: lists of sequences."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * np.dtype(dtype).itemsize
    ends = np.cumsum([0] + [len(document) for document in documents], dtype=np.int64)
    prefix.with_suffix(".bin").write_bytes(b"".join(np.array(one, dtype=dtype).tobytes() for one in sequences))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, CODES[dtype], len(sequences), len(ends)) + lengths.tobytes() +
        pointers.tobytes() + ends.tobytes())


def blocks(tokens):
    count = (len(tokens) - 1) // BLOCK
    cut = lambda shift: np.array(tokens[shift:shift + count * BLOCK], dtype=np.int64).reshape(count, BLOCK)
    return cut(0), cut(1)


def main():
    folder, random = pathlib.Path(sys.argv[1]), np.random.default_rng(3)
    (folder / "shards").mkdir(parents=True)
    documents = [[*random.integers(0, SEPARATOR, random.integers(2, 30)), SEPARATOR] for _ in range(24)]
    tokens = [token for document in documents for token in document]
    np.array(tokens, dtype=np.uint16).tofile(folder / "raw.bin")
    np.array(tokens, dtype=np.uint16).tofile(folder / "documents.bin")
    llmc(folder / "llmc.bin", tokens, 20240520, 1, np.uint16)
    llmc(folder / "llama.bin", tokens, 20240801, 7, np.uint32)
    for dtype in CODES:
        megatron(folder / f"meg_{dtype}", [[one] if i == 0 else [one[:1], one[1:]] for i, one in enumerate(documents)], dtype)
    ids, labels = blocks(tokens)
    np.savez(folder / "blocks.npz", ids=ids, labels=labels)
    parts = {"0": tokens[:70], "10": tokens[70:150], "2": tokens[150:]}
    for name, part in parts.items():
        np.array(part, dtype=np.uint16).tofile(folder / "shards" / f"{name}.bin")
    samples = [blocks(part) for part in parts.values()]
    ids, labels = (np.concatenate(side) for side in zip(*samples))
    np.savez(folder / "sharded.npz", ids=ids, labels=labels)
    for i, (some, theirs) in enumerate(samples):
        np.savez(folder / f"part{i}.npz", ids=some, labels=theirs)


main()
