"""Does `cleave launch --dry-run` tell what the job starts?

    check_dry_run.py DRY.json DRY.txt

Runs the job that DRY.json holds with a `cleave` that only notes its words and variables: each process of the dry run is
one that was started. Where the launcher is not on this machine (srun, torchrun), one in its place starts one process, so
that the words alone are compared. The lines of DRY.txt, run in a shell, start the same processes.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import yaml

dry = json.loads(pathlib.Path(sys.argv[1]).read_text())
NOTE = """#!/usr/bin/python3
import json, os, sys
json.dump({"words": sys.argv[1:], "variables": dict(os.environ)}, open(f"{os.environ['SEEN']}/{os.getpid()}", "w"))
"""
# The words of the command that a launcher starts.
STARTS = """#!/bin/bash
while [ "$1" != cleave ]; do shift; done
exec "$@"
"""


def started(scripts):
    """What the processes note that these shell scripts start, each with variables of its own."""
    with tempfile.TemporaryDirectory() as folder:
        seen, programs = pathlib.Path(folder) / "seen", pathlib.Path(folder) / "bin"
        seen.mkdir(), programs.mkdir()
        for name, text in {"cleave": NOTE, "srun": STARTS, "torchrun": STARTS, "scontrol": "#!/bin/sh\n"}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        common = {"PATH": f"{programs}:{os.environ['PATH']}", "SEEN": str(seen), "HOME": folder,
                  "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        for script, variables in scripts:
            subprocess.run(["bash", "-c", script], env=common | variables, check=True)
        return [json.loads(path.read_text()) for path in seen.iterdir()]


def scripts_of_job():
    if dry["launcher"] != "k8s":
        return [(dry["job"], {"MASTER_ADDR": "first", "CLEAVE_SECRET": "a secret of all ranks"})]
    _, job = yaml.safe_load_all(dry["job"])
    container, = job["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    return [(container["command"][2], variables | {"JOB_COMPLETION_INDEX": str(node)}) for node in range(dry["nodes"])]


def compare(processes, sets_variables):
    words = shlex.split(dry["command"])[1:]
    assert all(one["words"] == words for one in processes), (processes, words)
    if not sets_variables:
        return
    left = list(processes)
    for told in dry["processes"]:
        match = [one for one in left if told["environment"].items() <= one["variables"].items()]
        assert len(match) == 1, (told, len(match))
        left.remove(match[0])
    assert not left, left


assert not dry["written"] and [one["rank"] for one in dry["processes"]] == list(range(dry["ranks"]))
assert [one["node"] for one in dry["processes"]] == [rank // dry["ranks_per_node"] for rank in range(dry["ranks"])]
assert len({tuple(one["coordinate"].values()) for one in dry["processes"]}) == dry["ranks"]  # a place for each
knows = dry["launcher"] in ("k8s", "mpirun")
of_job = started(scripts_of_job())
assert len(of_job) == (dry["ranks"] if knows else 1), len(of_job)
compare(of_job, knows)
lines = started([(pathlib.Path(sys.argv[2]).read_text(), {})])
assert len(lines) == dry["ranks"], len(lines)
compare(lines, True)
