"""run --all on the fake of NVIDIA's libraries, of which one cannot be opened here: LIBRARY, or none."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

run, build, folder, missing = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
shutil.rmtree(folder, ignore_errors=True)
libraries = folder / "libraries"
libraries.mkdir(parents=True)
for library in (build / "test/unit/cuda/libraries").iterdir():
    if library.name.startswith(missing):
        (libraries / library.name).write_text("")  # not the system's either: the loader looks here first
    else:
        (libraries / library.name).symlink_to(library.resolve())
for name in [f"{missing}.so", f"{missing}.so.12"] if missing == "libcublasLt" else []:
    (libraries / name).write_text("")
done = subprocess.run([sys.executable, run, "--build", build, "--fake", "--all", "--budget", "540", "--out", folder / "out",
                       "--models", "mlp", "--splits", "single", "--node-tests", "test_gemm_all_attributes,test_basic_conv_with_padding",
                       "--nccl-cases", "mlp ddp2 fp32"],
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                      env={**os.environ, "FAKE_CUDA_LIBRARIES": str(libraries), "LD_LIBRARY_PATH": str(libraries)})
print(done.stdout, end="")
summary = json.loads((folder / "out/summary.json").read_text())
if "no_gpu" in summary:
    print(f"exit status {done.returncode}; no GPU: {summary['no_gpu']}")
else:
    failed = sorted(name for name, counts in summary["suites"].items() if counts["failed"])
    files = sorted(file.name for file in (folder / "out").iterdir())
    print(f"exit status {done.returncode}; failed in: {' '.join(failed) or 'none'}; files: {' '.join(files)}")
