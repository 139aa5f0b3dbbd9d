#!/usr/bin/env python3
"""The suite `nccl` of test/gpu/run: a process for each rank, and NCCL between them.

    test/gpu/nccl.py --build BUILD [--fake] [--cases GLOBS] [--budget SECONDS]
    test/gpu/nccl.py --build BUILD --record       writes nccl_losses.json: the losses of the same plans on cpu:N

Golden models with 2 and 4 processes, in fp32 and bf16, with graphs and without: losses beside PyTorch's in doubles and beside
those of the same plan on cpu:N, within the tolerances of test/golden/golden.py. Then every kind of collective in many sizes
(test/unit/fabric), a rank that is killed, a rank that hangs, and what NCCL refuses.

With fewer GPUs than processes the ranks share them, which NCCL can do from 2.30 on (NCCL_MULTI_RANK_GPU_ENABLE=1). With MPS their
kernels run at once; without it they take turns, and a step takes as many time slices as its longest chain of exchanges. Each case
has a time limit, and one that fails leaves the others. An older NCCL, or none, is told as a skipped case.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "test/golden"), str(ROOT / "test/cli/Inputs"), str(HERE)]
import golden  # noqa: E402
import gpus  # noqa: E402
from free_port import free_port  # noqa: E402

SHARES_GPUS = 23000  # NCCL 2.30
LIMIT, FAKE_LIMIT = 30, 120  # seconds for a case
LOSSES = HERE / "nccl_losses.json"
WITHOUT_GRAPHS = ("--no-graphs",)
FABRIC_RANKS = 6  # of test/unit/fabric
# Model, split of golden.SPLITS, precision, flags of `cleave run`. The most telling come FIRST, before faults.
Case = collections.namedtuple("Case", "model split precision flags", defaults=((),))
FIRST = 7
CASES = [
    Case("mlp", "ddp2", "fp32"),
    Case("gpt2_tiny", "dp2tp2zero3", "bf16"),  # groups of one axis and of two, side by side
    Case("gpt2_tiny", "pp2", "bf16"),  # transfers
    Case("gshard_tiny", "ep4", "bf16"),  # all-to-all
    Case("llama_tiny", "cp4", "bf16"),  # rings
    Case("gpt2_tiny", "dp2pp2zero3", "bf16"),  # gathers beside transfers
    Case("mlp", "ddp2", "fp32", WITHOUT_GRAPHS),
    Case("gpt2_tiny", "dp2tp2zero3", "fp32"),
    Case("gpt2_tiny", "dp2tp2zero3", "bf16", WITHOUT_GRAPHS),
    Case("gpt2_tiny", "pp2", "fp32", WITHOUT_GRAPHS),
    Case("llama_tiny", "tp2ulysses2", "bf16"),
    Case("gpt2_tiny", "megatronsp4", "bf16"),
    Case("bert_tiny", "cp2zero3", "fp32"),
    Case("experts_tiny", "dp2ep2", "fp32"),
    Case("gpt2_tiny", "pp2zbv", "bf16"),
    Case("bert_tiny", "grid2d", "fp32"),
    Case("llama_tiny", "cp2", "fp32", WITHOUT_GRAPHS),
]


def name_of(case):
    return " ".join([case.model, case.split, case.precision, *case.flags])


def devices_of(case):
    return golden.SPLITS[case.split][0]


class Ranks:
    """The processes of one run. Each says what it has to say into a file of its own; whoever is left at the end is killed."""

    def __init__(self, command, count, environment, folder):
        port = free_port()
        self.texts = [folder / f"rank-{rank}.txt" for rank in range(count)]
        self.processes = []
        for rank, text in enumerate(self.texts):
            variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count,
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            with open(text, "w") as out:
                self.processes.append(subprocess.Popen(
                    [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    env={**environment(rank), **{name: str(value) for name, value in variables.items()}}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.kill()
        for process in self.processes:
            process.wait()

    def said(self, rank):
        return self.texts[rank].read_text(errors="replace").strip()

    def all_said(self):
        return "\n".join(f"rank {rank} ({'runs' if process.poll() is None else process.returncode}): {self.said(rank)[-1500:]}"
                         for rank, process in enumerate(self.processes))

    def wait(self, rank, seconds):
        """The exit status of a rank that ends in time."""
        try:
            return self.processes[rank].wait(max(0.1, seconds))
        except subprocess.TimeoutExpired:
            raise golden.Failure(f"rank {rank} has not ended after {seconds:.0f} s\n{self.all_said()}")

    def wait_for_lines(self, file, lines, seconds):
        """Until a file of metrics has so many lines."""
        end = time.monotonic() + seconds
        while not file.exists() or file.read_bytes().count(b"\n") < lines:
            if time.monotonic() > end or any(process.poll() is not None for process in self.processes):
                raise golden.Failure(f"no {lines} steps within {seconds:.0f} s\n{self.all_said()}")
            time.sleep(0.02)


class Mps:
    """NVIDIA's service by which kernels of several processes run on one GPU at once; it ends with this suite."""

    def __init__(self, folder):
        self.program = shutil.which("nvidia-cuda-mps-control") or next(
            (str(path) for path in pathlib.Path("/usr/local").glob("nvidia/bin/nvidia-cuda-mps-control")), None)
        self.variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps-log")}
        self.daemon = None

    def start(self):
        for folder in self.variables.values():
            pathlib.Path(folder).mkdir(exist_ok=True)
        self.daemon = subprocess.Popen([self.program, "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env={**os.environ, **self.variables})
        time.sleep(1)
        if self.daemon.poll() is not None:
            self.daemon = None

    def stop(self):
        if not self.daemon:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([self.program], input="quit -t 1\n", text=True, capture_output=True, timeout=10,
                           env={**os.environ, **self.variables})
            self.daemon.wait(10)
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None

    @contextlib.contextmanager
    def stopped(self):
        was_there = self.daemon
        self.stop()
        yield
        if was_there:
            self.start()


class Suite:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.end = time.monotonic() + args.budget if args.budget else None
        self.limit = FAKE_LIMIT if args.fake else LIMIT
        self.losses = json.loads(LOSSES.read_text()) if LOSSES.exists() else {}
        self.gpus = len(gpus.names())
        self.mps = Mps(folder)
        self.passed = self.failed = 0

    def left(self, limit):
        return min(limit, self.end - time.monotonic()) if self.end else limit

    def environment(self, processes, is_shared=True):
        """Of each rank. All ranks are on this machine, so NCCL needs no network."""
        common = {**golden.environment_of("fake-gpu" if self.args.fake else "on-gpu", self.args.build), "NCCL_DEBUG": "WARN",
                  "NCCL_SOCKET_IFNAME": "lo", **(self.mps.variables if self.mps.daemon else {})}
        if self.args.nccl_folder:  # goes before the folder that was there, which may have the other libraries
            common["LD_LIBRARY_PATH"] = ":".join(filter(None, map(common.get, ("CLEAVE_CUDA_LIBRARIES", "LD_LIBRARY_PATH"))))
            common["CLEAVE_CUDA_LIBRARIES"] = self.args.nccl_folder
        if self.gpus >= processes:
            return lambda rank: common
        if is_shared:  # a kernel of NCCL waits on the GPU for its peers' kernels: all of them must have room there
            common |= {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if self.gpus > 1 else []
        if len(visible) < self.gpus:
            visible = [str(gpu) for gpu in range(self.gpus)]
        return lambda rank: common if self.gpus == 1 else {**common, "CUDA_VISIBLE_DEVICES": visible[rank % self.gpus]}

    def plan_of(self, case):
        return self.folder / f"{case.model}-{case.split}-{case.precision}.plan"

    def compile(self, case):
        plan = self.plan_of(case)
        command = golden.compile_plan(self.args.build, self.folder / case.model, *golden.SPLITS[case.split], plan,
                                      "fake-gpu" if self.args.fake else "on-gpu")
        overrides = [] if case.precision == "fp32" else [f"precision={case.precision}", *golden.LIBRARY_ATTENTION]
        golden.call([*command, *(word for override in overrides for word in ("--set", override))])
        if self.args.fake:
            golden.call([self.args.build / golden.FAKE / "fake_gpu_plan", plan, plan])

    def train(self, case):
        """Losses of all steps, beside PyTorch's and cpu:N's."""
        expected = json.loads((golden.DATA / case.model / "golden.json").read_text())["loss_f64"]
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        count = devices_of(case)
        command = [self.args.build / "bin/cleave", "run", self.plan_of(case), "--steps", len(expected), "--metrics", metrics,
                   "--quiet", *case.flags]
        end = time.monotonic() + self.left(self.limit)
        with Ranks(command, count, self.environment(count), self.folder) as ranks:
            if any([ranks.wait(rank, end - time.monotonic()) for rank in range(count)]):
                raise golden.Failure(f"the ranks ended with errors\n{ranks.all_said()}")
            if "without CUDA graphs" in ranks.all_said():
                raise golden.Failure(f"the steps are no graphs\n{ranks.all_said()}")
        lines = [json.loads(line) for line in metrics.read_text().splitlines() if '"loss"' in line]
        if len(lines) != len(expected):
            raise golden.Failure(f"{len(lines)} steps in the metrics, {len(expected)} asked for")
        of_cpu = self.losses.get(name_of(case._replace(flags=())))
        if not of_cpu:
            raise golden.Failure(f"{LOSSES.name} has no losses of this plan on cpu:{count}: nccl.py --record writes them")
        tolerance, worst = golden.LOSS_TOLERANCE if case.precision == "fp32" else golden.LOW_LOSS_TOLERANCE, {}
        for where, recorded in (("PyTorch", expected), (f"cpu:{count}", of_cpu)):
            allowed = [tolerance + (golden.LOSS_AFTER_KINK if k >= golden.SAME_UP_TO_STEP.get(case.model, len(expected)) else 0)
                       for k in range(len(expected))]
            worst[where] = max(golden.check(f"loss of step {k + 1} beside {where}'s", line["loss"], loss, allowed[k])
                               for k, (line, loss) in enumerate(zip(lines, recorded, strict=True)))
        step = statistics.median(line["step_time_s"] for line in lines[3:])
        return ", ".join(f"loss within {error:.1e} of {where}'s" for where, error in worst.items()) + f", {1000 * step:.1f} ms a step"

    def fabric(self, what):
        """Every collective or message of test/unit/fabric, from nothing to 3 MiB, on six ranks."""
        count = FABRIC_RANKS
        command = [self.args.build / "bin/fabric_rank", what, "fake" if self.args.fake else "real"] + (["1e-5"] if what == "collectives" else [])
        end = time.monotonic() + self.left(self.limit)
        with Ranks(command, count, self.environment(count), self.folder) as ranks:
            ended = [ranks.wait(rank, end - time.monotonic()) for rank in range(count)]
            if any(ended) or any(not ranks.said(rank).endswith("ok") for rank in range(count)):
                raise golden.Failure(f"the ranks ended with {ended}\n{ranks.all_said()}")
        return f"{count} ranks"

    def long_run(self, flags):
        metrics = self.folder / "long.jsonl"
        metrics.unlink(missing_ok=True)
        command = [self.args.build / "bin/cleave", "run", self.plan_of(FAULT_CASE), "--steps", "1000000", "--metrics", metrics,
                   "--quiet", *flags]
        return Ranks(command, 2, self.environment(2), self.folder), metrics

    def expect(self, ranks, rank, status, pattern, seconds):
        """A rank ends in time with a status, and says something."""
        start = time.monotonic()
        ended = ranks.wait(rank, self.left(seconds))
        if ended != status or not re.search(pattern, ranks.said(rank)):
            raise golden.Failure(f"rank {rank} ended with {ended}, and {status} and '{pattern}' are expected\n{ranks.all_said()}")
        return f"rank {rank} ended after {time.monotonic() - start:.1f} s"

    def killed(self, flags):
        ranks, metrics = self.long_run(flags)
        with ranks:
            ranks.wait_for_lines(metrics, 10, self.left(self.limit))
            ranks.processes[1].send_signal(signal.SIGKILL)
            return self.expect(ranks, 0, 4, "rank 1 is gone", 30)

    def hanging(self):
        """A rank that is stopped within a step: the other gives up, and says how far both came."""
        ranks, metrics = self.long_run(["--step-timeout", "6"])
        with ranks:
            ranks.wait_for_lines(metrics, 10, self.left(self.limit))
            ranks.processes[1].send_signal(signal.SIGSTOP)
            said = self.expect(ranks, 0, 4, r"did not finish within 6\.0 s .*\n *rank 0: compute: .* commands done\)", 30)
            ranks.processes[1].send_signal(signal.SIGCONT)
            return f"{said}, {self.expect(ranks, 1, 4, 'rank 0 is gone|the step did not finish', 30)}"

    def refused(self):
        """Two ranks on one GPU without the variable."""
        command = [self.args.build / "bin/cleave", "run", self.plan_of(FAULT_CASE), "--steps", "1", "--quiet"]
        with Ranks(command, 2, self.environment(2, is_shared=False), self.folder) as ranks:
            return self.expect(ranks, 0, 4, "NCCL_MULTI_RANK_GPU_ENABLE=1", 30)

    def run(self, name, plan, work):
        """One case, whose plan is there when the future `plan` is."""
        if self.left(self.limit) < 5:
            raise TimeoutError(name)
        try:
            if plan:
                plan.result()
            start = time.monotonic()
            said = self.attempt(name, work)
            print(f"PASS nccl {name}: {said} ({time.monotonic() - start:.1f} s)", flush=True)
            self.passed += 1
        except golden.Failure as failure:
            print(f"FAIL nccl {name}: {failure}", flush=True)
            self.failed += 1

    def attempt(self, name, work):
        try:
            return work()
        except golden.Failure as failure:
            if not self.mps.daemon:
                raise
            self.mps.stop()  # a client that was killed at work can hold up the others
            if self.passed:
                self.mps.start()
                raise
            print(f"   nccl {name} fails with MPS, so the suite goes on without it: {failure}", flush=True)
            return work()

    def run_all(self):
        chosen = [case for case in CASES if is_chosen(name_of(case), self.args.cases)]
        fabric = {f"fabric {what}": lambda what=what: self.fabric(what) for what in ("collectives", "transfers")}
        faults = {"killed rank": lambda: self.killed([]), "killed rank --no-graphs": lambda: self.killed(WITHOUT_GRAPHS),
                  "hanging rank": self.hanging}
        if self.gpus == 1:
            faults["refused without NCCL_MULTI_RANK_GPU_ENABLE"] = self.refused
        fabric, faults = ({name: work for name, work in works.items() if is_chosen(name, self.args.cases)} for works in (fabric, faults))
        needed = list(dict.fromkeys(case._replace(flags=()) for case in [*chosen, *([FAULT_CASE] if faults else [])]))
        for model in {case.model for case in needed}:
            golden.prepare(model, self.folder)
        if self.mps.program and self.gpus < 4 and not self.args.fake:
            self.mps.start()
        print(f"   {'with' if self.mps.daemon else 'without'} MPS", flush=True)
        with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
            plans = {case: pool.submit(self.compile, case) for case in needed}
            try:
                self.train_all(plans, chosen[:FIRST])
                for name, work in fabric.items():
                    self.run(name, None, work)
                with self.mps.stopped():  # it does not outlive clients that are killed at work
                    for name, work in faults.items():
                        self.run(name, plans[FAULT_CASE], work)
                self.train_all(plans, chosen[FIRST:])
            finally:
                pool.shutdown(cancel_futures=True)
                self.mps.stop()

    def train_all(self, plans, cases):
        for case in cases:
            self.run(name_of(case), plans[case._replace(flags=())], lambda: self.train(case))


FAULT_CASE = Case("mlp", "ddp2", "fp32")


def is_chosen(name, globs):
    return any(fnmatch.fnmatch(name, glob) for glob in globs.split(","))


def version_of(library):
    """Of libnccl: 23102 for 2.31.2. None: it cannot be opened."""
    try:
        version = ctypes.c_int()
        ctypes.CDLL(library).ncclGetVersion(ctypes.byref(version))
        return version.value
    except OSError:
        return None


def choose_nccl(args, needed):
    """The NCCL that cleave would take, or the archive's if that one is too old. Its folder, its version, why there is none."""
    found = []
    for folder in (os.environ.get("CLEAVE_CUDA_LIBRARIES", ""), str(ROOT / "lib/nccl"), ""):
        version = version_of(f"{folder}/libnccl.so.2" if folder else "libnccl.so.2")
        if version and version >= needed:
            return folder, version, None
        if version:
            found.append(f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}")
    if found:
        return None, None, f"{found[0]} is older than 2.30, which can run several ranks on one GPU"
    return None, None, "libnccl.so.2 cannot be opened"


def record(build):
    """The losses of every plan on CPUs."""
    losses = {}
    with tempfile.TemporaryDirectory(prefix="cleave-nccl-losses-") as scratch:
        for case in dict.fromkeys(case._replace(flags=()) for case in CASES):
            work = pathlib.Path(scratch) / name_of(case)
            work.mkdir()
            steps = len(json.loads((golden.DATA / case.model / "golden.json").read_text())["loss_f64"])
            overrides = [] if case.precision == "fp32" else [f"precision={case.precision}"]
            lines, _ = golden.compile_and_run(build, golden.prepare(case.model, pathlib.Path(scratch)), *golden.SPLITS[case.split],
                                              steps, overrides, work, "")
            losses[name_of(case)] = [float(f"{line['loss']:.7g}") for line in lines]
    LOSSES.write_text("{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(values)}" for name, values in losses.items()) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default="*", help="globs of names: only these")
    parser.add_argument("--budget", type=float, help="seconds after which no case begins")
    parser.add_argument("--fake", action="store_true", help="the fake of NVIDIA's libraries instead of a GPU")
    parser.add_argument("--record", action="store_true", help="write the losses of cpu:N")
    args = parser.parse_args()
    args.build = args.build.resolve()
    if args.record:
        return record(args.build)
    if args.fake:
        os.environ["CLEAVE_CUDA_LIBRARIES"] = golden.fake_libraries(args.build)
    golden.PATIENCE = 2 * (FAKE_LIMIT if args.fake else LIMIT)  # for compiling
    args.nccl_folder, version, missing = choose_nccl(args, SHARES_GPUS if len(gpus.names()) < FABRIC_RANKS else 0)
    if missing:
        print(f"SKIP nccl: {missing}")
        return 0
    print(f"   NCCL {version // 10000}.{version // 100 % 100}.{version % 100}", flush=True)
    with tempfile.TemporaryDirectory(prefix="cleave-nccl-") as scratch:
        suite = Suite(args, pathlib.Path(scratch))
        try:
            suite.run_all()
        except TimeoutError as case:
            print(f"FAIL nccl {case}: the suite's time was over before it began", flush=True)
            return 1
        return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
