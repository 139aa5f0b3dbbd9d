"""Ranks whose views of the snapshots differ, two runs in one place, and states that others have left in memory: never a
snapshot with files of two moments or runs, and never a word less than what happened."""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from kept_state import losses

INPUTS = pathlib.Path(__file__).resolve().parents[2] / "cli/Inputs"
sys.path.insert(0, str(INPUTS))
from free_port import free_port  # noqa: E402

RANKS = 4


def start(command, variables, ranks=range(RANKS), port=None):
    port = str(port or free_port())
    of_all = dict(os.environ) | {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} | variables
    return [subprocess.Popen(command, env=of_all | {"RANK": str(rank)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for rank in ranks]


def ended(ranks):
    """Their statuses and what they said; a rank that has not ended after two minutes hangs."""
    said, deadline = [], time.monotonic() + 120
    for rank in ranks:
        try:
            said.append(rank.communicate(timeout=max(1, deadline - time.monotonic()))[1])
        except subprocess.TimeoutExpired:
            rank.kill()
            said.append("HUNG " + rank.communicate()[1])
    return [rank.returncode for rank in ranks], "\n".join(said)


def is_mixed(folder):
    """Whether a committed snapshot has a file of another run or moment than its manifest's."""
    for manifest in folder.glob("step-*/manifest.json"):
        content = json.loads(manifest.read_text())
        if json.loads(manifest.read_text())["step"] != int(manifest.parent.name.split("-")[1]):
            return True
        for number, file in enumerate(content["files"]):
            raw = (manifest.parent / f"rank-{number:04}.safetensors").read_bytes()
            header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
            if header["__metadata__"]["__run__"] != content["run"] or len(raw) != file["bytes"]:
                return True
    return False


def exports(bench, folder):
    """The newest snapshot's weights, whose checksums are compared."""
    out = folder.parent / f"{folder.name}.safetensors"
    done = subprocess.run([bench.cleave, "export", folder, "-o", out], capture_output=True, text=True)
    return out.read_bytes() if done.returncode == 0 else done.stderr


def are_right(bench, metrics, steps):
    """Whether the losses are those of one undisturbed run."""
    whole = bench.folder / f"undisturbed-{steps}.jsonl"
    if not whole.exists():
        subprocess.run(bench.command(whole, "--steps", str(steps)), check=True, stderr=subprocess.DEVNULL)
    right = dict(losses(whole))
    return all(right[step] == loss for step, loss in losses(metrics)) if metrics.exists() else True


def damage(path):
    raw = bytearray(path.read_bytes())
    raw[-1 - random.randrange(64)] ^= 0x40
    path.write_bytes(raw)


def stale_listings(bench, count=200):
    """One rank does not see the newest snapshot, cannot list the folder, or finds damaged bytes; then --resume."""
    library = bench.folder / "stale.so"
    subprocess.run(["clang-22", "-shared", "-fPIC", INPUTS / "stale_folder.c", "-o", library], check=True)
    whole = bench.folder / "kept"
    subprocess.run(bench.command(bench.folder / "kept.jsonl", "--steps", "10", "--snapshot", whole, "--snapshot-every", "5",
                                 "--keep", "9"), check=True, stderr=subprocess.DEVNULL)
    good, hung, named = 0, 0, 0
    for turn in range(count):
        folder, metrics = bench.folder / f"stale-{turn}", bench.folder / f"stale-{turn}.jsonl"
        shutil.copytree(whole, folder, symlinks=True)
        victim, kind = turn % RANKS, ("hidden", "failing", "damaged")[turn // RANKS % 3]
        variables = {"LD_PRELOAD": str(library), "STALE_RANK": str(victim)}
        if kind == "hidden":
            variables["STALE_NAME"] = "step-00000010"
        elif kind == "failing":
            variables["FAILING_FOLDER"] = str(folder)
        else:
            damage(folder / f"step-00000010/rank-{victim:04}.safetensors")
        command = bench.command(metrics, "--steps", "15", "--snapshot", folder, "--snapshot-every", "5", "--keep", "9", "--resume")
        command.remove("--quiet")
        statuses, said = ended(start(command, variables))
        resumed = [step for step in (5, 10) if f"resumed from step {step} in" in said]
        # Only rank 0 lists; where it cannot, nothing trains.
        wanted = {("failing", 0): ({1}, [], "Input/output error"), ("failing", 1): ({0}, [10], "")}
        status, steps, word = wanted.get((kind, min(victim, 1)), ({0}, [5], "" if victim == 0 and kind == "hidden" else "older snapshot"))
        told = resumed == steps and word in said
        fine = set(statuses) == status and not is_mixed(folder) and are_right(bench, metrics, 15)
        good, hung, named = good + (fine and told), hung + ("HUNG" in said), named + told
        if not (fine and told):
            print(f"stale listings, run {turn + 1}, {kind} on rank {victim}: {statuses}, resumed from {resumed}\n{said}", flush=True)
        shutil.rmtree(folder)
    yield ["stale, failing or damaged for one rank; then --resume", "TCP", count, good, hung, named, "", ""]


def crossed_runs(bench, count=100):
    """Two runs on one snapshot folder, or on one port, begun within half a second."""
    good, hung, named = 0, 0, 0
    for turn in range(count):
        at = pathlib.Path(tempfile.mkdtemp(dir=bench.folder))
        port, shares_folder = free_port(), turn % 2 == 0
        runs = []
        for number, steps in enumerate((12, 14)):
            command = bench.command(at / f"{number}.jsonl", "--steps", str(steps), "--snapshot", at / ("s" if shares_folder else f"s{number}"),
                                    "--snapshot-every", "2", "--keep", "9", "--meeting-timeout", "10")
            runs.append(start(command, {}, port=None if shares_folder else port))
            time.sleep(random.random() / 2)
        outcomes = [ended(run) for run in runs]
        said = "\n".join(text for _, text in outcomes)
        whole = [number for number, (statuses, _) in enumerate(outcomes) if not any(statuses)]
        # One of two that share a folder is refused, or comes after the other and is told that the folder is another run's.
        told = len(whole) == 2 or any(word in said for word in ("another run writes here", "holds another run's snapshots", "Address already in use",
                                                                "another process has this rank", "arrived within", "all ranks of a run need the same"))
        fine = not any(is_mixed(folder) for folder in at.glob("s*")) and all(are_right(bench, at / f"{number}.jsonl", 14) for number in whole)
        fine = fine and all(len(losses(at / f"{number}.jsonl")) == (12, 14)[number] for number in whole)
        good, hung, named = good + (fine and told), hung + ("HUNG" in said), named + told
        if not (fine and told):
            print(f"crossed runs, run {turn + 1}: {[statuses for statuses, _ in outcomes]}\n{said}", flush=True)
        shutil.rmtree(at)
    yield ["two runs on one snapshot folder or one port", "TCP", count, good, hung, named, "", ""]


def planted_mirrors(bench, count=50):
    """A state in memory of another user, or of another training, where a run with --mirror --resume looks for its own."""
    good, hung, named = 0, 0, 0
    for turn in range(count):
        port, metrics = free_port(), bench.folder / f"planted-{turn}.jsonl"
        folder = pathlib.Path(f"/dev/shm/cleave-{os.getuid()}-127.0.0.1-{port}")
        options = ["--mirror", "--step-timeout", "5"]
        left = start(bench.command(bench.folder / f"left-{turn}.jsonl", "--steps", "100000000", *options), {}, port=port)
        deadline = time.monotonic() + 60
        while not list(folder.glob("*/step-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        for rank in left:
            rank.kill()
        ended(left)
        foreign = turn % 2 == 0
        if foreign:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, 65534, 65534)
        kept = bench.folder / f"planted-{turn}"
        subprocess.run(bench.command(bench.folder / f"own-{turn}.jsonl", "--steps", "2", "--snapshot", kept), check=True, stderr=subprocess.DEVNULL)
        command = bench.command(metrics, "--steps", "6", "--snapshot", kept, "--resume", *options)
        command.remove("--quiet")
        statuses, said = ended(start(command, {}, port=port))
        told = "only this user can write" in said if foreign else "resumed from step 2 in" in said
        fine = set(statuses) == ({1} if foreign else {0}) and "step 2" in said + "step 2" * foreign and are_right(bench, metrics, 6)
        good, hung, named = good + (fine and told), hung + ("HUNG" in said), named + told
        if not (fine and told):
            print(f"planted mirrors, run {turn + 1}, of {'another user' if foreign else 'another training'}: {statuses}\n{said}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    yield ["a mirror of another user, or of another training", "TCP", count, good, hung, named, "", ""]
