"""Changes bytes of a plan and makes its checksums right again, as someone who wants it to pass would.

    change_plan.py IN OUT OLD NEW     every OLD in its message becomes NEW, which is as long
"""
import struct
import sys

from plan_file import HEADER, seal

old, new = sys.argv[3].encode(), sys.argv[4].encode()
assert len(old) == len(new), "another length would not be a message"
whole = open(sys.argv[1], "rb").read()
end = HEADER + struct.unpack_from("<Q", whole, 24)[0]  # a signature may follow
assert old in whole[HEADER:end], f"no {old} in the plan"
changed = bytearray(whole[:HEADER] + whole[HEADER:end].replace(old, new))
open(sys.argv[2], "wb").write(bytes(seal(changed)) + whole[end:])
