"""Opens a plan by the C interface and says what came of it.

    open_plan.py LIBRARY PLAN [trust | KEYFILE]
"""
import ctypes
import sys


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p), ("model", ctypes.c_char_p),
                ("snapshots", ctypes.c_char_p), ("resume", ctypes.c_int), ("threads", ctypes.c_int),
                ("step_timeout", ctypes.c_double), ("trust_keys", ctypes.c_char_p), ("trust_code", ctypes.c_int),
                ("check_weights", ctypes.c_int)]


cleave = ctypes.CDLL(sys.argv[1])
cleave.cleave_open.restype = ctypes.c_void_p
cleave.cleave_error.restype = ctypes.c_char_p
options = Options(size=ctypes.sizeof(Options), threads=1)
if len(sys.argv) > 3:
    options.trust_code = sys.argv[3] == "trust"
    options.trust_keys = None if sys.argv[3] == "trust" else sys.argv[3].encode()
training = ctypes.c_void_p(cleave.cleave_open(sys.argv[2].encode(), ctypes.byref(options)))
if training:
    print("opened:", "stepped" if cleave.cleave_step(training, None) == 0 else cleave.cleave_error(training).decode())
    cleave.cleave_close(training)
else:
    print(f"status {cleave.cleave_error_status(None)}: {cleave.cleave_error(None).decode()}")
