"""Early stopping, and metrics for Prometheus: a file by `cleave run`, a server by Python. Read by Prometheus' own parser.

    callbacks.py MODEL        of mlp: x [batch, 20], 10 classes
"""
import contextlib
import json
import math
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import types
import urllib.error
import urllib.request

import cleave
import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from ranks import free_port
from refused import refused

RECIPE = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2}, "clip_norm": 1.0,
          "data": {"kind": "arrays", "train_split": 0.5}, "eval": {"every": 3, "batches": 1},
          "grad_norms": {"first": ["0.*"], "rest": ["2.*"]}}


def early_stopping():
    def steps_of(losses, **options):
        stop = cleave.EarlyStopping(**options)
        for step, loss in enumerate(losses, 1):
            if stop(None, cleave.Metrics(step, loss, *[0.0] * 7)):
                return step, stop.best, stop.best_step
        return None
    falling = [5, 4, 3.95, 3.92, 3.91, 3]
    assert steps_of(falling, patience=2) is None
    assert steps_of(falling, patience=2, min_delta=0.1) == (4, 4, 2)
    assert steps_of(falling, patience=3, min_delta=0.1) == (5, 4, 2)
    assert steps_of([1, 1, 1], patience=2) == (3, 1, 1)  # equal is not better
    assert steps_of([1, 2, 3, 3, 3], patience=2, mode="max") == (5, 3, 3)
    assert steps_of([math.nan, math.nan, 1], patience=2) == (2, None, None)
    assert steps_of([3, 2, math.nan, 1, 1.5, math.inf], patience=2) == (6, 1, 4)
    every_other = cleave.EarlyStopping(patience=2, monitor=lambda _, metrics: metrics.loss if metrics.step % 2 == 0 else None)
    assert [every_other(None, cleave.Metrics(step, 1.0, *[0.0] * 7)) for step in range(1, 7)] == [False] * 5 + [True]
    refused(lambda: steps_of([1], patience=0), "patience")
    refused(lambda: steps_of([1], monitor="val_loss"), "metrics have no 'val_loss'; they have step, loss")


def fetch(url):
    return urllib.request.urlopen(url, timeout=10).read().decode()


def figures(text):
    """{name or (name, group): value}; each has help and a type, once."""
    found = {}
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families) and text.count("# TYPE") == text.count("# HELP") == len(families)
    for family in families:
        assert family.type == "gauge" and family.documentation and family.name.startswith("cleave_")
        for sample in family.samples:
            assert sample.name == family.name
            found[(sample.name[7:], sample.labels["group"]) if sample.labels else sample.name[7:]] = sample.value
    return found


def agree(told, line, evaluated):
    """A line of the metrics file, and what Prometheus is told of the same step."""
    wanted = {"eval_loss": evaluated, **line}
    wanted = {("grad_norm_of_group", key[10:]) if key.startswith("grad_norm.") else key: value for key, value in wanted.items()}
    assert told == wanted, (told, wanted)


def loggers(trainer, metrics):
    """The callbacks of the guide, with something in place of the libraries that keeps what it is given."""
    page = pathlib.Path(__file__).parents[2].joinpath("docs/guide/callbacks.md").read_text()
    given, names = [], {}
    keep = lambda name: lambda *arguments, **keys: given.append((name, arguments, keys))
    sys.modules["wandb"] = types.SimpleNamespace(init=lambda **keys: (keep("init")(**keys), types.SimpleNamespace(log=keep("log")))[1])
    sys.modules["mlflow"] = types.SimpleNamespace(set_experiment=keep("experiment"), log_metrics=keep("log"))
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        assert block.count("\n") <= 20
        exec(block, names)
    wanted = {name: value for name, value in metrics._asdict().items() if name != "step"}
    for callback, first in (names["WandB"](project="x"), ("init", (), {"project": "x"})), (names["MLflow"]("x"), ("experiment", ("x",), {})):
        given.clear()
        assert not callback(trainer, metrics) and not callback(trainer, metrics)
        assert given == [first] + [("log", (wanted,), {"step": metrics.step})] * 2, given
        given.clear()
        callback(types.SimpleNamespace(is_first=False), metrics)
        assert not given


def main(model):
    early_stopping()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        random = np.random.default_rng(0)
        np.savez(folder / "data.npz", input=random.standard_normal((64, 20), dtype=np.float32), labels=random.integers(0, 10, 64))
        RECIPE["data"]["path"] = str(folder / "data.npz")
        plan = cleave.compile(model, RECIPE, "cpu:2", folder / "x.plan")

        def run(*options):
            return subprocess.run([cleave.tool_path(), "run", plan.path, "--quiet", *options], capture_output=True, text=True)
        done = run("--steps", "8", "--prometheus", folder / "cleave.prom", "--metrics", folder / "m.jsonl")
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in open(folder / "m.jsonl")]
        told = figures((folder / "cleave.prom").read_text())
        agree(told, lines[-1], lines[5]["eval_loss"])
        assert "eval_loss" not in lines[-1] and told["step"] == 8 and {("grad_norm_of_group", "first"), "lr", "data_s"} <= set(told)
        # A reader finds the file whole at any moment, and nothing else is left.
        with subprocess.Popen([cleave.tool_path(), "run", plan.path, "--quiet", "--steps", "4000", "--prometheus", folder / "r.prom"]) as running:
            seen = set()
            while running.poll() is None:
                if (folder / "r.prom").exists() and (text := (folder / "r.prom").read_text()):
                    assert text == "# no step is done yet\n" or len(figures(text)) >= len(told) - 1, text
                    seen.add(text)
        assert running.returncode == 0 and figures((folder / "r.prom").read_text())["step"] == 4000 and len(seen) > 1
        assert not [file for file in os.listdir(folder) if "partial" in file]
        # A port: the latest step while it trains, and a client that says nothing does not hold up the end.
        port = free_port()
        url = f"http://127.0.0.1:{port}/metrics"
        with subprocess.Popen([cleave.tool_path(), "run", plan.path, "--quiet", "--steps", "3000", "--prometheus", str(port)]) as running:
            seen, idle, until = [], None, time.monotonic() + 60
            while running.poll() is None and time.monotonic() < until:
                with contextlib.suppress(OSError):  # it has not begun, or ends
                    text = fetch(url)
                    idle = idle or socket.create_connection(("127.0.0.1", port))
                    seen += [figures(text)["step"]] if "TYPE" in text else []
            running.kill()
        assert running.returncode == 0 and seen == sorted(seen) and len(set(seen)) > 1 and seen[-1] <= 3000, (running.returncode, seen[-5:])
        idle.close()
        with socket.create_server(("127.0.0.1", port)):
            done = run("--steps", "1", "--prometheus", str(port), "--metrics", folder / "none.jsonl")
            assert done.returncode == 1 and f"--prometheus {port}: 127.0.0.1:{port} cannot be listened at" in done.stderr, done.stderr
            assert (folder / "none.jsonl").read_text() == ""
        for given, words in ("65536", "a port is 1 to 65535"), (folder / "x.txt", "end in .prom"), (folder / "no/x.prom", "cannot be written"):
            done = run("--steps", "1", "--prometheus", given)
            assert done.returncode in (1, 2) and words in done.stderr, done.stderr

        # The server of Python: nothing before the first step, the latest then.
        server = cleave.PrometheusServer(0)
        url = f"http://127.0.0.1:{server.port}/metrics"
        assert fetch(url) == ""
        refused(lambda: cleave.PrometheusServer(server.port), f"port {server.port} of 127.0.0.1: Address already in use")
        os.environ.update({"RANK": "1", "WORLD_SIZE": "2"})
        cleave.PrometheusServer(server.port).close()  # another rank serves nothing
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
        with cleave.Trainer(plan) as trainer:
            for step in range(2):
                metrics = trainer.step()
                assert server(trainer, metrics) is False
                told = figures(fetch(url))
                loggers(trainer, metrics)
                assert told["step"] == step + 1 and told["loss"] == metrics.loss and told["step_time_s"] == metrics.step_seconds
        try:
            fetch(url + "x")
            raise AssertionError("a page that is not there")
        except urllib.error.HTTPError as error:
            assert error.code == 404
        server.close()
    cleave.PrometheusServer(0)  # does not hold up the end of the process
    print("callbacks: as expected")


main(sys.argv[1])
