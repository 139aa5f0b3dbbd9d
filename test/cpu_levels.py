"""The levels of x86-64 instructions that tests limit kernels and oneDNN to."""
import pathlib
import re

# name for `--cpu`: oneDNN's name, what /proc/cpuinfo lists where the CPU has it
LEVELS = {
    "x86-64-v2": ("SSE41", {"sse4_2", "popcnt", "cx16"}),
    "x86-64-v3": ("AVX2", {"avx2", "fma", "f16c", "bmi2", "movbe", "abm"}),
    "x86-64-v4": ("AVX512_CORE", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}


def levels_here():
    """Those that this CPU has."""
    flags = set(re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    return [level for level, (_, needs) in LEVELS.items() if needs <= flags]


def limited(environment, level):
    """The environment of programs whose kernels and oneDNN keep to a level."""
    return {**environment, "CLEAVE_CPU": level, "ONEDNN_MAX_CPU_ISA": LEVELS[level][0]}
