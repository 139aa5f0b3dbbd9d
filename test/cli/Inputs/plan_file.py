"""Finding and changing parts of a plan file (runtime/plan/plan.proto, framed by runtime/plan/plan_file.cpp)."""
import hashlib
import struct
import zlib

HEADER = 40


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def messages(data, begin, end, wanted):
    """Where the submessages with a field's number lie: begin with their tags, begin, end."""
    at = begin
    while at < end:
        start = at
        tag, at = varint(data, at)
        if tag & 7 == 2:
            size, at = varint(data, at)
            if tag >> 3 == wanted:
                yield start, at, at + size
            at += size
        elif tag & 7 == 0:
            at = varint(data, at)[1]
        else:
            at += 8 if tag & 7 == 1 else 4


def seal_code(data):
    """The digest of a plan's code and reference graphs (runtime/plan/code_digest.cpp), as they now are."""
    parts = {number: [bytes(data[begin:end]) for _, begin, end in messages(data, HEADER, len(data), number)]
             for number in (5, 6, 7, 10, 16, 17, 20, 22)}
    one = lambda number: parts[number] or [b""]
    digest = hashlib.blake2b(digest_size=32)
    for part in one(5) + one(6) + parts[16] + parts[7] + one(20) + one(10) + parts[22]:
        digest.update(b"%d " % len(part) + part)
    _, begin, end = next(messages(data, HEADER, len(data), 17))
    data[begin:end] = digest.digest()
    return data


def seal(data):
    """The checksums of a changed plan of the same length."""
    struct.pack_into("<I", data, 32, zlib.crc32(data[HEADER:]))
    struct.pack_into("<I", data, 12, zlib.crc32(data[:12], zlib.crc32(data[16:HEADER])))
    return data
