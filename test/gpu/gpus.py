"""Which GPUs this machine has, and where NVIDIA's libraries are. Asked of NVIDIA's driver as the runtime does: libcuda.so.1, where CLEAVE_CUDA_LIBRARIES names a
folder from there."""
import ctypes
import os
import pathlib
import sys


class NoGpu(Exception):
    pass


def names():
    """Names of the GPUs; NoGpu says why there is none."""
    folder = os.environ.get("CLEAVE_CUDA_LIBRARIES")
    library, why = None, []
    for path in ([str(pathlib.Path(folder) / "libcuda.so.1")] if folder else []) + ["libcuda.so.1"]:
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            why.append(str(error))
    if library is None:
        raise NoGpu(f"no driver for NVIDIA GPUs: {'; '.join(why)}")
    if status := library.cuInit(0):
        raise NoGpu(f"the driver finds no GPU (cuInit: error {status})")
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for ordinal in range(count.value):
        device, text = ctypes.c_int(), ctypes.create_string_buffer(256)
        library.cuDeviceGet(ctypes.byref(device), ordinal)
        library.cuDeviceGetName(text, 256, device)
        found.append(text.value.decode())
    if not found:
        raise NoGpu("the driver finds no GPU (CUDA_VISIBLE_DEVICES may hide them)")
    return found


def find_libraries():
    """cuBLASLt, cuDNN and NCCL often come with PyTorch, as pip's packages, or with the toolkit, where the loader does not look:
    their folders go behind LD_LIBRARY_PATH, which cleave follows."""
    folders = [str(found) for path in sys.path for found in sorted(pathlib.Path(path or ".").glob("nvidia/*/lib"))]
    folders += [str(found) for found in sorted(pathlib.Path("/usr/local").glob("cuda*/lib64"), reverse=True)]
    known = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    os.environ["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(known + folders))


# Names as the driver has them: the cluster preset whose compute capability, memory and rates they have.
KINDS = [("H200", "h200"), ("H100", "h100-80g"), ("B200", "b200"), ("A100-SXM4-40GB", "a100-40g"), ("A100-PCIE-40GB", "a100-40g"),
         ("A100", "a100-80g"), ("V100-SXM2-16GB", "v100-16g"), ("V100", "v100-32g"), ("Fake GPU", "h100-80g")]


def kind_of(name):
    for part, kind in KINDS:
        if part in name:
            return kind
    raise NoGpu(f"no cluster preset for a {name}: one of {', '.join(sorted({kind for _, kind in KINDS}))} is needed")
