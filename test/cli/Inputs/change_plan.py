"""Changes bytes of a plan and makes its checksums right again, as someone who wants it to pass would.

    change_plan.py IN OUT OLD NEW     every OLD in its message becomes NEW, which is as long
"""
import struct
import sys
import zlib

source, target, old, new = sys.argv[1], sys.argv[2], sys.argv[3].encode(), sys.argv[4].encode()
assert len(old) == len(new), "another length would not be a message"
whole = open(source, "rb").read()
header, payload = bytearray(whole[:40]), whole[40:]
assert old in payload, f"no {old} in the plan"
payload = payload.replace(old, new)
length = struct.unpack_from("<Q", header, 24)[0]
struct.pack_into("<I", header, 32, zlib.crc32(payload[:length]))
struct.pack_into("<I", header, 12, zlib.crc32(bytes(header[:12]), zlib.crc32(bytes(header[16:]))))
open(target, "wb").write(bytes(header) + payload)
