"""Blanks the code for other GPUs in a library, so that it packs to a tenth: what the driver looks at first stays as it is.

    blank_architectures.py LIBRARY OUT 90        keeps the machine code for sm_90

The section .nv_fatbin is a row of containers (magic, version, size of this header, size of what follows), and a container a row of
entries (kind, version, size of this header, size of the code, ..., at byte 28 the architecture). The driver takes the one entry
that is for its GPU. __nv_relfatbin has the parts from which NVIDIA's linker made those; it is read only where none of them fits.
"""
import pathlib
import struct
import subprocess
import sys

CONTAINER, ENTRY, MAGIC = struct.Struct("<IHHQ"), struct.Struct("<HHIQ12xI"), 0xBA55ED50


def sections(library):
    """Offset and size of each section with code for GPUs."""
    for line in subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.replace("[ ", "[").split()
        if len(words) > 5 and words[1] in (".nv_fatbin", "__nv_relfatbin"):
            yield words[1], int(words[4], 16), int(words[5], 16)


def blank(data, begin, end, kept):
    """Zeros for the code of every entry that is not of the architecture. Bytes that stay."""
    stays = 0
    while begin < end:
        magic, _, header, size = CONTAINER.unpack_from(data, begin)
        if magic != MAGIC:  # between containers
            begin += 8
            continue
        entry, begin = begin + header, begin + header + size
        while entry < begin:
            _, _, header, size, architecture = ENTRY.unpack_from(data, entry)
            if architecture == kept:
                stays += size
            else:
                data[entry + header:entry + header + size] = bytes(size)
            entry += header + size
    return stays


def main():
    library, out, architecture = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    data = bytearray(pathlib.Path(library).read_bytes())
    for name, offset, size in sections(library):
        stays = blank(data, offset, offset + size, architecture if name == ".nv_fatbin" else None)
        if name == ".nv_fatbin" and not stays:
            sys.exit(f"{library} has no code for sm_{architecture}")
    out.write_bytes(data)


if __name__ == "__main__":
    main()
