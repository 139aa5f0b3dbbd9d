"""cleave.batches beside plain loops over the same rows: order, epochs, resuming, lists, several files, a store, what it refuses."""
import pathlib
import sys
import tempfile

import cleave
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from refused import refused


def main():
    rows, block = 103, 6
    ids = np.arange(rows)
    tokens = (ids[:, None] * 10 + np.arange(block)).astype(np.int32)
    table = pa.table({"tokens": list(tokens), "id": ids, "weight": ids / 7, "flag": ids % 2 == 0,
                      "fixed": pa.FixedSizeListArray.from_arrays(pa.array(tokens.ravel()), block), "text": [str(i) for i in ids],
                      "ragged": [[1] * (i % 3) for i in ids], "hole": [None if i == 50 else i for i in ids]})
    numbers = ["tokens", "id", "weight", "flag", "fixed"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "parts").mkdir()
        pa.parquet.write_table(table, folder / "all.parquet", row_group_size=10)
        for part in range(3):
            pa.parquet.write_table(table.slice(part * 40, 40), folder / f"parts/{part}.parquet", row_group_size=16)
        (folder / "parts/_SUCCESS").touch()
        pa.feather.write_feather(table, folder / "all.feather", compression="uncompressed")
        with pa.ipc.new_stream(folder / "all.arrow", table.schema) as stream:  # as Hugging Face's datasets save
            for batch in table.to_batches(max_chunksize=30):
                stream.write_batch(batch)
        for url, path in ("memory://c/0.parquet", "parts/0.parquet"), ("memory://c/1.parquet", "parts/1.parquet"), \
                ("memory://c/2.parquet", "parts/2.parquet"), ("memory://a/all.arrow", "all.arrow"):
            with fsspec.open(url, "wb") as file:
                file.write((folder / path).read_bytes())
        import os
        os.environ["CLEAVE_CACHE_DIR"] = str(folder / "cache")

        # In the files' order: each row once, every column as it was, lists as rows.
        for source in (folder / "all.parquet", folder / "parts", f"{folder}/parts/*.parquet", str(folder / "all.feather"),
                       [folder / f"parts/{part}.parquet" for part in range(3)], folder / "all.arrow", "memory://c", "memory://c/*.parquet",
                       "memory://a/all.arrow"):
            read = cleave.batches(source, 8, numbers, shuffle=False, window=20)
            assert len(read) == 12, source
            told = list(read)
            whole = {name: np.concatenate([batch[name] for batch in told]) for name in numbers}
            assert all(len(batch["id"]) == 8 for batch in told)
            assert np.array_equal(whole["id"], ids[:96]) and np.array_equal(whole["tokens"], tokens[:96]) and whole["tokens"].dtype == np.int32
            assert np.array_equal(whole["fixed"], tokens[:96]) and np.array_equal(whole["weight"], ids[:96] / 7)
            assert np.array_equal(whole["flag"], ids[:96] % 2 == 0)

        # Shuffled: each epoch has each row at most once and an order of its own, which (seed, epoch) alone says.
        def drawn(seed, epochs=2, window=16384, start=0):
            read = cleave.batches(folder / "all.parquet", 8, {"x": "tokens", "labels": "id"}, seed=seed, window=window)
            read.seek(start)
            return [batch for _ in range(epochs) for batch in read]
        for window in 16384, 25, 1:
            first = drawn(3, window=window)
            order = [np.concatenate([batch["labels"] for batch in first[epoch * 12:epoch * 12 + 12]]) for epoch in range(2)]
            assert all(len(set(one)) == 96 for one in order) and not np.array_equal(*order) and not np.array_equal(order[0], np.sort(order[0]))
            assert all(np.array_equal(batch["x"][:, 0], batch["labels"] * 10) for batch in first)
            again, other = drawn(3, window=window), drawn(4, window=window)
            assert all(np.array_equal(a["labels"], b["labels"]) for a, b in zip(first, again, strict=True))
            assert not np.array_equal(first[0]["labels"], other[0]["labels"])
            for start in 1, 5, 11, 12, 17:  # resumed in the first epoch and in the second
                rest = drawn(3, window=window, epochs=2 - start // 12, start=start)
                assert all(np.array_equal(a["labels"], b["labels"]) for a, b in zip(first[start:], rest, strict=True)), (window, start)
        # NumPy's RandomState does not change: neither does this order.
        assert drawn(0)[0]["labels"].tolist() == FIRST, drawn(0)[0]["labels"].tolist()
        # The part of a rank.
        part = next(iter(cleave.batches(folder / "all.parquet", 8, ["id"], shuffle=False, rows=[4, 5, 6, 7])))
        assert part["id"].tolist() == [4, 5, 6, 7]

        # A training on them, and resumed behind a snapshot.
        random = np.random.default_rng(0)
        x, labels = random.standard_normal((64, 20), dtype=np.float32), random.integers(0, 10, 64)
        pa.parquet.write_table(pa.table({"x": list(x), "labels": labels}), folder / "mlp.parquet", row_group_size=16)
        recipe = {"dims": {"batch": 8}, "loss": {"kind": "softmax_cross_entropy"}, "optimizer": {"kind": "adamw", "lr": 1e-2}}
        plan = cleave.compile(sys.argv[1], recipe, "cpu:2")
        read = lambda: cleave.batches(folder / "mlp.parquet", 8, {"input": "x", "labels": "labels"})
        with cleave.Trainer(plan, snapshots=folder / "snapshots") as trainer:
            data, losses = read(), []
            for _ in range(2):
                for batch in data:
                    losses.append(trainer.step(batch).loss)
                    if data.step == 5:
                        trainer.save()
        with cleave.Trainer(plan, snapshots=folder / "snapshots", resume=True) as trainer:
            data = read()
            data.seek(trainer.steps_done)
            assert [trainer.step(batch).loss for batch in data] == losses[5:8]

        refused(lambda: cleave.batches(folder / "all.parquet", 8), "column 'text' is string")
        refused(lambda: cleave.batches(folder / "all.parquet", 8, ["nothing"]), "has no column 'nothing'; it has tokens, id")
        refused(lambda: cleave.batches(folder / "all.parquet", 200, ["id"]), "has 103 rows, and a batch 200")
        refused(lambda: list(cleave.batches(folder / "all.parquet", 8, ["ragged"])), "column 'ragged' have 0 to 2 elements")
        refused(lambda: list(cleave.batches(folder / "all.parquet", 8, ["hole"])), "column 'hole' has 1 values that are null")
        refused(lambda: cleave.batches(folder / "none*", 8), "there is no Parquet or Arrow file")
        refused(lambda: cleave.batches(folder / "none.parquet", 8), "none.parquet: cannot be read", "No such file")
        (folder / "cut.parquet").write_bytes((folder / "all.parquet").read_bytes()[:-9])
        refused(lambda: cleave.batches(folder / "cut.parquet", 8), "cut.parquet: cannot be read")
        pa.parquet.write_table(table.select(["id"]).cast(pa.schema([("id", pa.int32())])), folder / "other.parquet")
        refused(lambda: cleave.batches([folder / "all.parquet", folder / "other.parquet"], 8, ["id"]), "other.parquet: column 'id' is int32, in")
    sys.modules.update({"pyarrow": None, "pyarrow.parquet": None})
    refused(lambda: cleave.batches("x.parquet", 8), "pip install pyarrow")
    print("batches: as expected")


FIRST = [83, 22, 41, 87, 48, 7, 36, 70]
main()
