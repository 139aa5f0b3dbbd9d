# lit configuration of test/lit (passes, FileCheck) and test/cli (the tool as a person uses it).
import os

import lit.formats

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = lit_config.params.get("build", os.path.join(root, "build"))
llvm = "/usr/lib/llvm-22"

config.name = "cleave"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".mlir", ".test"]
config.excludes = ["golden", "unit", "bench", "conformance", "data"]
config.test_source_root = os.path.join(root, "test")
config.test_exec_root = os.path.join(build, "test")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "bin"), os.path.join(llvm, "bin"), os.environ["PATH"]])
for name in ("HOME", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "CLEAVE_CPU",
             "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS",  # test/sanitize/options.sh
             "PAGE_PICTURES"):  # where page.test leaves its pictures
    if name in os.environ:
        config.environment[name] = os.environ[name]
# %loading: before a Python that loads libcleave_runtime.so. AddressSanitizer's library has to be there before.
loading = "env"
if "ASAN_OPTIONS" in os.environ:
    config.available_features.add("sanitized")
    library = f"{llvm}/lib/clang/22/lib/linux/libclang_rt.asan-x86_64.so"
    loading = f"env LD_PRELOAD={library} ASAN_OPTIONS={os.environ['ASAN_OPTIONS']}:detect_leaks=0"
config.substitutions.append(("%loading", loading))
config.environment["CLEAVE_STATE_DIR"] = os.path.join(build, "test", "state")  # which plans are ours
config.environment["CLEAVE_VERIFY_IR"] = "1"  # MLIR's verifier runs after every pass
config.environment["COLUMNS"] = "1000"  # reports are not wrapped
config.environment["CUDA_VISIBLE_DEVICES"] = ""  # the same on a machine with a GPU: ./dev test --gpu is for those
config.substitutions.append(("%root", root))
config.substitutions.append(("%build", build))
config.substitutions.append(("%models", os.path.join(root, "models")))
config.substitutions.append(("%golden", os.path.join(root, "test", "golden", "data")))
dependencies = os.environ.get("CLEAVE_DEPS", os.path.expanduser("~/.cache/cleave/dependencies"))
config.substitutions.append(("%axe", os.path.join(dependencies, "axe", "axe.min.js")))
config.substitutions.append(("%python", "/usr/bin/python3"))
inputs = os.path.join(root, "test", "cli", "Inputs")
config.substitutions.append(("%exits", os.path.join(inputs, "exits.sh")))  # %exits STATUS COMMAND...
config.substitutions.append(("%free_port", f"$(/usr/bin/python3 {inputs}/free_port.py)"))
config.substitutions.append(("%fake_gpus", f"env CLEAVE_CUDA_LIBRARIES={build}/test/unit/cuda/libraries XDG_CACHE_HOME=%t/cache"))
config.substitutions.append(("%expect", "/usr/bin/python3 " + os.path.join(inputs, "expect.py")))
# %with_torch: before a Python that imports torch and cleave, or `cleave check`.
config.substitutions.append(("%with_torch", " ".join([
    "env", f"PYTHONPATH={root}/python:{dependencies}/torch/site", f"CLEAVE_BIN={build}/bin/cleave",
    f"CLEAVE_LIBRARY={build}/lib/libcleave_runtime.so"])))
config.available_features.add("x86_64" if os.uname().machine == "x86_64" else os.uname().machine)
