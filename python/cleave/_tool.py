"""Finds and starts the command `cleave`; its errors become exceptions."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys


class CleaveError(RuntimeError):
    """A failure, with file, line or node. `status`: 1 the input is wrong, 2 wrong use, 3 no plan fits, 4 a run failed."""
    __module__ = "cleave"  # as a traceback names it

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


def launched_rank():
    """This process' number, as its launcher tells it (runtime/engine/comm/launch.h); 0 of one that runs alone."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", *(["RANK"] if "WORLD_SIZE" in os.environ else []), "SLURM_PROCID")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


# With these a launcher says that several processes are one run (runtime/engine/comm/launch.h).
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS")


@contextlib.contextmanager
def alone():
    """What is computed meanwhile each process of a run computes by itself."""
    kept = {name: os.environ.pop(name) for name in _LAUNCHED if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def run_program(main):
    """A program's end: the error that ended it, as the command writes it, and its status."""
    try:
        main()
    except CleaveError as error:
        print(f"cleave: error: {error}", file=sys.stderr)
        sys.exit(error.status)


def tool_path():
    """The command: CLEAVE_BIN, that of this Python environment, or the first one in PATH."""
    own = pathlib.Path(sys.prefix, "bin", "cleave")
    found = os.environ.get("CLEAVE_BIN") or (own if own.exists() else shutil.which("cleave"))
    if not found:
        raise CleaveError("the command `cleave` is not found: CLEAVE_BIN may name it", 2)
    return str(found)


def run_tool(*arguments, quiet=False):
    """Standard output of a command. Its notes and warnings go to standard error when it ends, unless `quiet`."""
    child = subprocess.Popen([tool_path(), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, told = child.communicate()
    errors = [line for line in told.splitlines() if line.startswith("cleave: error: ")]
    if child.returncode:
        first = told.find("cleave: error: ")
        raise CleaveError(told[first + len("cleave: error: "):].strip() if errors else told.strip(), child.returncode)
    if told and not quiet:
        print(told, end="", file=sys.stderr)
    return output
