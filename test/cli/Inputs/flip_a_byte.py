"""flip_a_byte.py FILE: changes an exponent's bit of its last number."""
import sys

with open(sys.argv[1], "r+b") as file:
    file.seek(-1, 2)
    byte = file.read(1)[0] ^ 0x40
    file.seek(-1, 2)
    file.write(bytes([byte]))
