"""Libraries that answer "no device" in the place of NVIDIA's, so that PyTorch's wheel loads where there is no GPU.

An install of 10 s and 1.3 GB instead of 60 s and 5.8 GB:

    pip install --no-deps torch && python stub_nvidia.py SITE_PACKAGES    # by LLVM's tools
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

LLVM = pathlib.Path("/usr/lib/llvm-22/bin")
NVIDIA = re.compile(r"lib(cu|nccl|nv)\S*")
TEXTS = re.compile(r"(Error|Status|Result)(String|Name)$|^ncclGetLastError$")  # functions that return a text


def function(symbol):
    """Says "no device", and of a stream that nothing captures it, as transformers ask."""
    if symbol == "cudaStreamIsCapturing":
        return f"int {symbol}(void *stream, int *status) {{ *status = 0; return 0; }}\n"
    if TEXTS.search(symbol):
        return f"const char *{symbol}(void) {{ return \"no device\"; }}\n"
    return f"int {symbol}(void) {{ return 100; }}\n"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def main(site_packages):
    folder = pathlib.Path(site_packages, "torch", "lib")
    needed, symbols, loose = set(), collections.defaultdict(lambda: collections.defaultdict(set)), set()
    for library in folder.glob("*.so*"):
        own = [name for name in re.findall(r"NEEDED\s+(\S+)", output(LLVM / "llvm-objdump", "-p", library)) if NVIDIA.match(name)]
        needed |= {name for name in own if not (folder / name).exists()}
        versions = {}
        owner = None
        for line in output(LLVM / "llvm-objdump", "-p", library).splitlines():
            found = re.match(r"\s+required from (\S+):", line)
            owner = found.group(1) if found else owner
            found = re.match(r"\s+0x\S+ 0x\S+ \d+ (\S+)", line)
            if found and owner:
                versions[found.group(1)] = owner
        for line in output(LLVM / "llvm-objdump", "-T", library).splitlines():
            if "*UND*" not in line:
                continue
            *_, version, name = line.split()
            version = version.strip("()")
            if NVIDIA.match(versions.get(version, "")):
                symbols[versions[version]][version].add(name)
            elif re.match(r"_?(cu|nccl|nv)[A-Za-z]", name):
                loose.add(name)
    for name in needed:
        with tempfile.TemporaryDirectory() as scratch:
            source, script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
            versioned = symbols.get(name, {})
            known = set().union(*versioned.values()) if versioned else set()
            rest = loose - known if not versioned else set()
            source.write_text("".join(map(function, sorted(known | rest))))
            script.write_text("".join(f"{version} {{ global: {' '.join(f'{s};' for s in sorted(names))} }};\n"
                                      for version, names in versioned.items()))
            flags = [f"-Wl,--version-script={script}"] if versioned else []
            subprocess.run(["gcc", "-w", "-shared", "-fno-builtin", str(source), "-o", str(folder / name), f"-Wl,-soname,{name}",
                            *flags], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
