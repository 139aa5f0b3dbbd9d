"""noise_png.py SIZE OUT: a square PNG of noise, slow to decode beside a small model's step."""
import random
import struct
import sys
import zlib

size, out = int(sys.argv[1]), sys.argv[2]
noise = random.Random(1)
rows = b"".join(b"\0" + bytes(noise.getrandbits(4) for _ in range(3 * size)) for _ in range(size))


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


with open(out, "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) +
               chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
