"""Batches of the rows of Parquet and Arrow files, as NumPy arrays, by pyarrow."""
import glob
import os
import pathlib

from cleave import stores
from cleave._tool import CleaveError

ARROW = (".arrow", ".feather", ".ipc")


def batches(source, batch_size, columns=None, *, shuffle=True, seed=0, window=16384, rows=None):
    """Batches for Trainer.step and fit: {column: array [batch_size, ...]}. Lists, such as token ids, become rows of one length.

    source: a Parquet or Arrow file, a folder, a glob such as "corpus/*.parquet", a URL of any of them (fsspec), or a list.
    columns: names, or {input: column}; all where it is left out. shuffle: an order of its own for each epoch, by (seed, epoch):
    the row groups are shuffled, then the rows of each `window` or more of them. Rows that fill no batch are left out of an epoch.
    rows: which rows of each batch are given, such as Trainer.rank_samples with local batches.

    Iterating gives the rest of an epoch; `step` is the number of batches given so far, and seek(trainer.steps_done) goes on
    behind a snapshot.
    """
    return Batches(source, batch_size, columns, shuffle, seed, window, rows)


class Batches:
    def __init__(self, source, batch_size, columns, shuffle, seed, window, rows):
        _pyarrow()
        if batch_size < 1 or not 0 <= seed < 2**32:
            raise CleaveError("batches: batch_size is at least 1, and seed is from 0 to 2**32 - 1", 2)
        self.batch_size, self._seed, self._shuffle, self._window, self._rows = batch_size, seed, shuffle, window, rows
        files = [file for one in (source if isinstance(source, (list, tuple)) else [source]) for file in _files(one)]
        first = files[0].schema
        names = columns if columns is not None else first.names
        self._columns = dict(names) if isinstance(names, dict) else {name: name for name in names}
        for file in files:
            for column in self._columns.values():
                if column not in file.schema.names:
                    raise CleaveError(f"{file.name}: has no column {column!r}; it has {', '.join(file.schema.names)}", 1)
                if file.schema.field(column).type != first.field(column).type:
                    raise CleaveError(f"{file.name}: column {column!r} is {file.schema.field(column).type}, in {files[0].name} "
                                      f"{first.field(column).type}", 1)
        for column in self._columns.values():
            _check_type(files[0].name, column, first.field(column).type)
        self._groups = [(file, number, count) for file in files for number, count in enumerate(file.counts) if count]
        self.rows_of_epoch = sum(count for _, _, count in self._groups)
        if self.rows_of_epoch < batch_size:
            raise CleaveError(f"{source}: has {self.rows_of_epoch} rows, and a batch {batch_size}", 1)
        self.step = 0

    def __len__(self):
        """Batches of an epoch."""
        return self.rows_of_epoch // self.batch_size

    def seek(self, step):
        """The next batch is the one behind so many; nothing before it is read."""
        self.step = step

    def __iter__(self):
        import numpy as np
        epoch, first = divmod(self.step, len(self))
        ahead, parts, kept = first * self.batch_size, [], 0  # rows to pass over; of the batch under way, and how many
        for number, groups in enumerate(self._windows(epoch)):
            count = sum(rows for _, _, rows in groups)
            if ahead >= count:
                ahead -= count
                continue
            arrays = self._read(groups)
            order = self._random(epoch, number + 1).permutation(count) if self._shuffle else np.arange(count)
            while ahead < count:
                taken = order[ahead:ahead + self.batch_size - kept]
                parts.append({name: array[taken] for name, array in arrays.items()})
                ahead, kept = ahead + len(taken), kept + len(taken)
                if kept == self.batch_size:
                    self.step += 1
                    batch = {name: parts[0][name] if len(parts) == 1 else np.concatenate([part[name] for part in parts])
                             for name in self._columns}
                    yield batch if self._rows is None else {name: array[self._rows] for name, array in batch.items()}
                    parts, kept = [], 0
            ahead = 0

    def _windows(self, epoch):
        """Row groups in the order of an epoch, as many together as have `window` rows."""
        order = self._random(epoch, 0).permutation(len(self._groups)) if self._shuffle else range(len(self._groups))
        window, rows = [], 0
        for index in order:
            window.append(self._groups[index])
            rows += self._groups[index][2]
            if rows >= self._window:
                yield window
                window, rows = [], 0
        if window:
            yield window

    def _random(self, epoch, number):
        """NumPy keeps what this generator draws the same in all its versions."""
        import numpy as np
        return np.random.RandomState([self._seed, epoch, number])

    def _read(self, groups):
        import numpy as np
        names = list(dict.fromkeys(self._columns.values()))
        tables = [(file, file.read(number, names)) for file, number, _ in groups]
        parts = {name: [_array(file.name, name, table.column(name)) for file, table in tables] for name in names}
        for name, arrays in parts.items():
            if len({array.shape[1:] for array in arrays}) > 1:
                _refuse_lengths(tables[0][0].name, name, [array.shape[1] for array in arrays])
        joined = {name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for name, arrays in parts.items()}
        return {name: joined[column] for name, column in self._columns.items()}


def _pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CleaveError("batches of Parquet and Arrow files need pyarrow: pip install pyarrow", 2) from None
    return pyarrow


class _Parquet:
    def __init__(self, name, opened):
        self.name, self._open = name, opened
        with stores.failing(name, "cannot be read"):
            with opened() as file:
                parquet = _pyarrow().parquet.ParquetFile(file)
                self._about, self.schema = parquet.metadata, parquet.schema_arrow
        self.counts = [self._about.row_group(group).num_rows for group in range(self._about.num_row_groups)]

    def read(self, group, columns):
        with stores.failing(self.name, "cannot be read"), self._open() as file:
            return _pyarrow().parquet.ParquetFile(file, metadata=self._about).read_row_group(group, columns=columns)


class _Arrow:
    """A file or a stream of record batches, as it lies in memory: it is mapped."""

    def __init__(self, name, path):
        self.name = name
        pyarrow = _pyarrow()
        with stores.failing(name, "cannot be read"):
            mapped = pyarrow.memory_map(str(path))
            is_file = mapped.read_at(6, 0) == b"ARROW1"
            self._table = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(mapped).read_all()
        self.schema, self.counts = self._table.schema, [self._table.num_rows]

    def read(self, _, columns):
        return self._table.select(columns)


def _files(source):
    """The files of a source, by name."""
    source = os.fspath(source)
    if stores.is_url(source):
        store, path = stores.store_of(source)
        scheme = source[:source.index("://") + 3]
        with stores.failing(source, "cannot be read"):
            found = store.glob(path) if glob.has_magic(path) else [
                f"{path}/{name}".rstrip("/") for name in stores.files_below(store, path)]
        found = [(name if stores.is_url(name) else scheme + name, name) for name in _visible(found, path)]
        opened = [_Arrow(url, stores.fetched(url)) if url.endswith(ARROW) else
                  _Parquet(url, lambda name=name: store.open(name, "rb")) for url, name in found]
    else:
        source = os.path.normpath(source)
        if glob.has_magic(source):
            found = glob.glob(source, recursive=True)
        else:
            found = [path for path in pathlib.Path(source).rglob("*") if path.is_file()] if os.path.isdir(source) else [source]
        opened = [_Arrow(name, name) if name.endswith(ARROW) else _Parquet(name, lambda name=name: open(name, "rb"))
                  for name in _visible(found, source)]
    if not opened:
        raise CleaveError(f"{source}: there is no Parquet or Arrow file", 1)
    return opened


def _visible(paths, below):
    """In order; without what writers leave beside their files, such as _SUCCESS and .crc."""
    below = os.path.dirname(str(below))
    return sorted(path for path in map(str, paths) if not any(part[:1] in "._" for part in path[len(below):].split("/") if part))


def _check_type(file, column, kind):
    types = _pyarrow().types
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise CleaveError(f"{file}: column {column!r} is {kind}: an array needs numbers, or lists of numbers; `columns` chooses "
                          "others", 1)


def _array(file, name, column):
    """An array [rows, ...] of a column."""
    pyarrow = _pyarrow()
    types = pyarrow.types
    values = pyarrow.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    shape = [len(values)]
    while True:
        if values.null_count:
            raise CleaveError(f"{file}: column {name!r} has {values.null_count} values that are null", 1)
        if types.is_fixed_size_list(values.type):
            shape.append(values.type.list_size)
        elif types.is_list(values.type) or types.is_large_list(values.type):
            lengths = values.value_lengths().to_numpy(zero_copy_only=False)
            if lengths.size and lengths.min() != lengths.max():
                _refuse_lengths(file, name, lengths)
            shape.append(int(lengths[0]) if lengths.size else 0)
        else:
            return values.to_numpy(zero_copy_only=False).reshape(shape)
        values = values.flatten()


def _refuse_lengths(file, name, lengths):
    raise CleaveError(f"{file}: the lists of column {name!r} have {min(lengths)} to {max(lengths)} elements: a batch needs lists "
                      "of one length; cut or pack them first", 1)
