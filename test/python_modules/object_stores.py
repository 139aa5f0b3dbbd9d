"""Data and snapshots in object stores: fetched once, uploaded whole or not at all, resumed bit for bit.

    object_stores.py MODEL          of mlp: x [batch, 20], 10 classes
    object_stores.py rank PLAN FOLDER CACHE       one of two ranks, which this script starts itself
"""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import cleave
import fsspec
import numpy as np
from cleave import remote_snapshots, stores
from counting_store import CountingStore
from ranks import run_ranks
from refused import refused

RECIPE = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2}}


def losses(trainer, count):
    return [trainer.step().loss for _ in range(count)]


def rank(plan, folder, cache):
    os.environ["CLEAVE_CACHE_DIR"] = cache + os.environ["RANK"] if cache.endswith("-") else cache
    CountingStore.of(f"{folder}/store")
    with cleave.Trainer(plan, trust_code=True, snapshots="counted://ranks", resume=True) as trainer:
        begun = trainer.steps_done
        told = losses(trainer, 2)
        trainer.save()
        refused(trainer.state_dict, "load_into(module, 'counted://ranks')")
        CountingStore.failing = "rank-0001"  # rank 1's upload fails, and rank 0 says so, too
        trainer.step()
        refused(trainer.save, "step-%08d was not uploaded: the connection was reset" % trainer.steps_done)
    print(json.dumps([begun, told]))


def data(module, folder, x, labels):
    store = CountingStore.of(folder / "store")
    np.savez(folder / "own.npz", input=x, labels=labels)
    for name, array in ("input", x), ("labels", labels):
        (store.folder / "arrays").mkdir(exist_ok=True)
        np.save(store.folder / "arrays" / f"{name}.npy", array)
    own = {"kind": "arrays", "path": str(folder / "own.npz")}
    with cleave.Trainer(cleave.compile(module, {**RECIPE, "data": own}, "cpu:2")) as trainer:
        wanted = losses(trainer, 4)
    with fsspec.open("memory://data/own.npz", "wb") as file:
        file.write((folder / "own.npz").read_bytes())
    for url in "counted://arrays", "memory://data/own.npz", f"file://{folder}/own.npz":
        plan = cleave.compile(module, {**RECIPE, "data": {**own, "path": url}}, "cpu:2")
        for data in None, url:
            with cleave.Trainer(plan, data=data) as trainer:
                assert losses(trainer, 4) == wanted, url
    assert store.calls() == ["get arrays/input.npy", "get arrays/labels.npy"]
    # Another version is another file of the cache. One that comes cut off, or changes meanwhile, is none.
    x[:8] += 1
    np.save(store.folder / "arrays" / "input.npy", x)
    store.short = "labels"
    refused(lambda: cleave.Trainer(plan, data="counted://arrays"), "labels.npy", "bytes came of")
    store.short = None
    with cleave.Trainer(plan, data="counted://arrays") as trainer:
        assert losses(trainer, 4) != wanted
    cached = [entry.name for entry in (folder / "cache" / "data").iterdir() if "partial" in entry.name]
    assert not cached, cached
    refused(lambda: cleave.Trainer(plan, data="counted://nothing"), "counted://nothing: there is no such file or folder")
    refused(lambda: cleave.Trainer(plan, data="nope://x"), "nope://x", "Protocol not known: nope")
    refused(lambda: cleave.Trainer(plan, data="s3://bucket/x"), "s3://bucket/x", "nstall s3fs")
    # A process that waits for another's fetch gives up.
    with stores.lock(folder / "l", "counted://a"):
        refused(lambda: stores.lock(folder / "l", "counted://a", seconds=0.1).__enter__(), "another process has held")
    return plan


def snapshots(plan, one, folder):
    store = CountingStore.of(folder / "snaps")
    with cleave.Trainer(plan) as trainer:
        wanted = losses(trainer, 8)
    for url in "counted://run", "memory://run", f"file://{folder}/local":
        with cleave.Trainer(plan, snapshots=url) as trainer:
            assert losses(trainer, 2) == wanted[:2]
            trainer.save()
            assert losses(trainer, 1) == wanted[2:3]
            trainer.save()
        with cleave.Trainer(plan, snapshots=url, resume=True) as trainer:
            assert trainer.steps_done == 3 and losses(trainer, 3) == wanted[3:6]
            trainer.save()
            weights = trainer.parameters()
        with cleave.Trainer(one, snapshots=url, resume=True) as trainer:  # another split
            assert all(np.array_equal(value, weights[name]) for name, value in trainer.parameters().items())
        refused(lambda: cleave.Trainer(plan, snapshots=url), url, "holds another run's snapshots, the newest step-00000006")
        refused(lambda: cleave.Trainer(plan, snapshots=url, resume=True, overwrite=True), "exclude each other")
    two = ["step-00000003", "step-00000006"]
    assert sorted(os.listdir(store.folder / "run")) == two, "an old one stays, or a kept one is gone"
    assert sorted(name.rsplit("/", 1)[-1] for name in fsspec.filesystem("memory").ls("/run", detail=False)) == two
    # The marker comes last; nothing is uploaded twice.
    assert [call for call in store.calls() if "put run/step-00000006" in call] == [
        f"put run/step-00000006/{name}" for name in ("manifest.json", "rank-0000.safetensors", "rank-0001.safetensors")]
    # An upload that is interrupted leaves none, and what is there stays.
    for file in "rank-0001", "manifest":
        with cleave.Trainer(plan, snapshots="counted://run", resume=True) as trainer:
            assert trainer.steps_done == 6
            assert losses(trainer, 1) == wanted[6:7]
            store.failing = file
            refused(trainer.save, "counted://run: the snapshot step-00000007 was not uploaded: the connection was reset")
            store.failing = None
    # With a marker that was cut off, a part that is missing, or one byte that is another: the one before, and it says so.
    def spoiled(wanted_words, step):
        with contextlib.redirect_stderr(io.StringIO()) as said, cleave.Trainer(plan, snapshots="counted://run", resume=True) as trainer:
            assert trainer.steps_done == step, trainer.steps_done
            assert losses(trainer, 2) == wanted[step:step + 2]
        assert all(word in said.getvalue() for word in wanted_words), said.getvalue()
    assert (store.folder / "run/step-00000007/manifest.json").read_text() == "half"
    spoiled(["step-00000007: its manifest.json is damaged; an older snapshot is taken"], 6)
    (store.folder / "run/step-00000007/manifest.json").unlink()
    part = store.folder / "run/step-00000006/rank-0001.safetensors"
    whole = part.read_bytes()
    cached_folder = folder / "cache" / "snapshots"
    for content, words in (whole[:-1], "is missing or cut off"), (whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:], "is damaged"):
        shutil.rmtree(cached_folder)  # as on another host
        part.write_bytes(content)
        spoiled(["step-00000006", words], 3)
    (store.folder / "run/step-00000003/rank-0000.safetensors").unlink()
    shutil.rmtree(cached_folder)
    with contextlib.redirect_stderr(io.StringIO()):
        refused(lambda: cleave.Trainer(plan, snapshots="counted://run", resume=True), "none of its snapshots is whole")
    with cleave.Trainer(plan, snapshots="counted://run", overwrite=True) as trainer:
        assert trainer.steps_done == 0 and not os.listdir(store.folder / "run")
        remote_snapshots.ENDING_SECONDS = 0.1
        # Another run of this host is noticed.
        refused(lambda: cleave.Trainer(plan, snapshots="counted://run", resume=True), "another run writes there (process")


def main(module):
    random = np.random.default_rng(0)
    x, labels = random.standard_normal((64, 20), dtype=np.float32), random.integers(0, 10, 64)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["CLEAVE_CACHE_DIR"] = str(folder / "cache")
        plan = data(module, folder, x, labels)
        one = cleave.compile(module, {**RECIPE, "data": {"kind": "arrays", "path": f"file://{folder}/own.npz"}}, "cpu:1")
        snapshots(plan, one, folder)
        # Two ranks: what both need is fetched once, each uploads its part, and both resume.
        store = CountingStore.of(folder / "store")
        store.calls()
        recipe = {**RECIPE, "data": {"kind": "arrays", "path": "counted://arrays"}}
        cleave.compile(module, recipe, "cpu:2", folder / "two.plan", mesh="dp=2", zero=1)
        os.utime(store.folder / "arrays/input.npy")  # another version
        told, calls = [], []
        for cache in "cache", "cache", "cache-":  # the last: as on two hosts, each with a cache of its own
            told.append([json.loads(text) for text in run_ranks(2, "object_stores.py", "rank", folder / "two.plan", folder, folder / cache)])
            calls.append(store.calls())
        with cleave.Trainer(folder / "two.plan") as trainer:
            wanted = losses(trainer, 6)
        assert [one for both in told for one in both] == [[at, wanted[at:at + 2]] for at in (0, 0, 2, 2, 4, 4)], told
        for number, (input_fetches, fetches) in enumerate([(1, 0), (0, 2), (2, 4)]):
            count = lambda words: sum(words in call for call in calls[number])
            assert count("get arrays/input") == input_fetches and count("get ranks/") == fetches, calls[number]
            assert count(f"put ranks/step-0000000{number * 2 + 2}/rank") == 2 and count("put ranks/step-") == 5, calls[number]
        with cleave.Trainer(folder / "two.plan", snapshots="counted://ranks", resume=True) as trainer:
            assert trainer.steps_done == 6
        # The command refuses URLs, and a Python without fsspec says what it needs.
        run = ["run", folder / "two.plan", "--steps", "1"]
        for command in ([*run, "--data", "s3://b/x"], [*run, "--snapshot", "s3://b/x"], [*run, "--snapshot", "s3://b/x", "--resume"],
                        run, ["export", "s3://b/x", "-o", folder / "w.safetensors"]):
            done = subprocess.run([cleave.tool_path(), *command], capture_output=True, text=True)
            assert done.returncode == 1 and "is a URL, and this is for files: cleave.Trainer" in done.stderr, done.stderr
        initial = {"init": {"kind": "safetensors", "path": "s3://b/x"}}
        refused(lambda: cleave.compile(module, {**RECIPE, **initial}, "cpu:1"), "'init.path' s3://b/x: is a URL")
        sys.modules.update({"fsspec": None, "fsspec.core": None})
        refused(lambda: cleave.Trainer(folder / "two.plan"), "counted://arrays: URLs need fsspec: pip install fsspec")
    print("object stores: as expected")


rank(*sys.argv[2:]) if sys.argv[1:2] == ["rank"] else main(sys.argv[1])
