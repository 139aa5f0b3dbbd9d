"""Snapshots under kills and full disks, and state in memory when a process is lost: what is left is whole, and the run
that goes on has the undisturbed losses."""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

LOSE = pathlib.Path(__file__).resolve().parents[2] / "cli/Inputs/lose_a_rank.py"
EVERY = 5


def losses(path):
    return [(line["step"], line["loss"]) for line in map(json.loads, path.read_text().splitlines())]


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def go_on(bench, folder, metrics, *options, **kwargs):
    return subprocess.Popen(bench.command(metrics, "--snapshot", folder, "--snapshot-every", str(EVERY), "--resume", *options),
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **kwargs)


def is_undisturbed(bench, metrics, name):
    """Whether the losses that many runs left are those of one run."""
    steps = lines(metrics)
    whole = bench.folder / f"{name}-whole.jsonl"
    subprocess.run(bench.command(whole, "--steps", str(steps)), check=True, stderr=subprocess.DEVNULL)
    return losses(metrics) == losses(whole)


def kills(bench, count=500):
    """Kills at random moments; each time the run goes on from what is left."""
    folder, metrics = bench.folder / "killed", bench.folder / "killed.jsonl"
    step, lost, during = 0, 0, 0
    for turn in range(count):
        before, process = lines(metrics), go_on(bench, folder, metrics, "--steps", "100000000")
        deadline = time.monotonic() + 60
        while lines(metrics) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(random.random() / 5)
        process.kill()
        process.communicate()
        manifests = sorted(folder.glob("step-*/manifest.json"))
        newest = json.loads(manifests[-1].read_text())["step"] if manifests else 0
        lost += newest < step
        during += bool(list(folder.glob(".step-*.partial")))
        step = max(step, newest)
        if turn % 50 == 49:
            print(f"kills: {turn + 1}, step {step}, {during} within a snapshot, {lost} lost one", flush=True)
    last = go_on(bench, folder, metrics, "--steps", str(step + EVERY))
    said = last.communicate(timeout=120)[1]
    good = last.returncode == 0 and is_undisturbed(bench, metrics, "killed")
    yield [f"kill at a random moment, {during} of them within a snapshot; then on with --resume", "threads", count,
           count - lost if good else f"not the undisturbed losses: {said}", 0, "", "", ""]


def full_disks(bench, count=50):
    """A disk is filled to a random byte at a random moment; later it has room again, and the run goes on."""
    if os.geteuid() != 0:
        print("full disks: only root can make a small disk", flush=True)
        return
    disk = bench.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
    try:
        good, named, statuses = 0, 0, {}
        for turn in range(count):
            whole, said, status = fill_once(bench, disk, turn)
            good += whole
            named += status == 0 and "No space left" not in said or "No space left on device" in said
            statuses[status] = statuses.get(status, 0) + 1
            if turn % 10 == 9:
                print(f"full disks: {turn + 1}, {good} whole, ended with {statuses}", flush=True)
        ends = ", ".join(f"{number} with {status}" for status, number in sorted(statuses.items()))
        yield [f"disk full at a random byte (ends {ends}); then on with --resume", "threads", count, good, 0, named, "", ""]
    finally:
        subprocess.run(["umount", disk], check=True)


def fill_once(bench, disk, turn):
    folder, metrics, filler = disk / f"snapshots-{turn}", disk / f"metrics-{turn}.jsonl", disk / "filler"
    process = go_on(bench, folder, metrics, "--steps", "3000")
    time.sleep(0.1 + random.random() / 2)
    free = os.statvfs(disk)
    left = random.randrange(300_000)
    with open(filler, "wb") as out:
        out.write(b"x" * max(0, free.f_bavail * free.f_bsize - left))
    said = process.communicate(timeout=120)[1]
    status = process.returncode
    filler.unlink()
    again = go_on(bench, folder, metrics, "--steps", "3050")
    again.communicate(timeout=120)
    entries = losses(metrics)
    # Lines that the disk did not take are missing; those that are there are right.
    undisturbed = bench.folder / "undisturbed-3050.jsonl"
    if not undisturbed.exists():
        subprocess.run(bench.command(undisturbed, "--steps", "3050"), check=True, stderr=subprocess.DEVNULL)
    right = dict(losses(undisturbed))
    whole = again.returncode == 0 and all(right[step] == loss for step, loss in entries) and entries[-1][0] == 3050
    for path in [*folder.rglob("*"), metrics]:
        if path.is_file():
            path.unlink()
    return whole, said, status


def going_on(bench, count=20):
    """One of four processes is lost with its parent; the others go on from memory."""
    good, seconds = 0, []
    for turn in range(count):
        metrics = bench.folder / f"going-on-{turn}.jsonl"
        command = bench.command(metrics, "--steps", "300", "--mirror", "--elastic", "--max-restarts", "2")
        command.remove("--quiet")
        lost = subprocess.run([sys.executable, LOSE, "4", str(turn % 4), metrics, *command], capture_output=True, text=True)
        took = re.search(r"after ([0-9.]+) s", lost.stdout)
        good += "ended with [0, 0, 0]" in lost.stdout and "went on in memory" in lost.stdout and "at most one" in lost.stdout
        seconds.append(float(took.group(1)) if took else float("nan"))
        print(f"going on, run {turn + 1}: rank {turn % 4} is lost, {lost.stdout.split(chr(10))[-3]}{lost.stderr}", flush=True)
    seconds.sort()
    yield ["lost process; the others go on from memory (seconds until the next step)", "TCP", count, good, 0, "",
           f"{seconds[len(seconds) // 2]:.1f}", f"{seconds[-1]:.1f}"]
