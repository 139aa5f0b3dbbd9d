"""Prints the scalars of TensorBoard's event files, oldest file first: "step tag value"; "start STEP" begins a session.

    read_events.py FOLDER TAG

Its own reader of TFRecord files and of tensorflow.Event, so that the writer has something to agree with.
"""
import pathlib
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def unmasked(value):
    rotated = (value - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C


def records(data):
    while data:
        length, = struct.unpack_from("<Q", data)
        body = data[12:12 + length]
        for checked, at in ((data[:8], 8), (body, 12 + length)):
            assert unmasked(struct.unpack_from("<I", data, at)[0]) == crc32c(checked)
        yield body
        data = data[16 + length:]


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            width = {1: 8, 5: 4}[kind]
            value, at = struct.unpack("<d" if kind == 1 else "<f", data[at:at + width])[0], at + width
        yield key >> 3, value


def main():
    folder, wanted = sys.argv[1:]
    files = sorted(pathlib.Path(folder).glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns)
    for path in files:
        first, *rest = records(path.read_bytes())
        assert dict(fields(first))[3] == b"brain.Event:2"
        for record in rest:
            event = dict(fields(record))
            if 7 in event:
                print("start", event[2])
            for _, value in fields(event.get(5, b"")):
                scalar = dict(fields(value))
                if scalar[1].decode() == wanted:
                    print(event[2], wanted, round(scalar[2], 6))


main()
