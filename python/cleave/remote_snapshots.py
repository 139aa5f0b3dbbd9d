"""Snapshots in an object store. The runtime writes and reads them in a folder of this process; here they come and go.

    URL/step-00000100/rank-0000.safetensors    of each device; a process uploads those of its own
                     /manifest.json            comes last: without it, there is no such snapshot

runtime/train/state/snapshot.h has what is in the files.
"""
import json
import re
import shutil
import sys

from cleave import stores
from cleave._tool import CleaveError, launched_rank

KEPT = 2  # snapshots, as the runtime keeps
ENDING_SECONDS = 5  # of a process of the attempt before
MARKER = "manifest.json"


class RemoteSnapshots:
    """The snapshots of a URL. `folder` is this process' own: it has its part of those that it writes, and the one that it resumes
    from, which the processes of a host fetch together into `fetched`. check: a function that gives why a folder is no whole
    snapshot, or None."""

    def __init__(self, url, check, host=None):
        self.url = url.rstrip("/")
        self._check = check
        self._store, self._root = stores.store_of(self.url)
        self._host = host or stores.cache_folder("snapshots") / stores.key_of(self.url)
        self.fetched, self.folder = self._host / "fetched", self._host / f"rank-{launched_rank():04}"

    def _contents(self):
        """{name of a snapshot: {its file: bytes}}; "" is the URL itself, where it is one snapshot."""
        found = {}
        for path, about in stores.files_below(self._store, self._root).items():
            step, _, name = path.rpartition("/")
            if re.fullmatch(r"(step-\d{8,})?", step):
                found.setdefault(step, {})[name] = about.get("size")
        return found

    def _whole(self, found):
        """Names of those that were uploaded to the end, the newest first."""
        names = [name for name, files in found.items() if MARKER in files]
        return sorted(names, key=lambda name: (len(name), name), reverse=True)

    def prepare(self, resume, overwrite):
        """Before a run, on every process: `folder` leads to the snapshot that `resume` goes on from, or is empty. Error: another
        run's snapshots are there; another run writes there now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with stores.lock(f"{self._host}.lock", self.url), stores.failing(self.url, "its snapshots cannot be looked at"):
            self._see_that_nobody_writes()
            found = self._contents()
            whole = self._whole(found)
            if whole and not (resume or overwrite):
                raise CleaveError(f"{self.url}: holds another run's snapshots, the newest {whole[0] or 'the URL itself'}: "
                                  "resume=True goes on from it, overwrite=True removes them, or give another URL", 1)
            for name in found if overwrite else ():
                self._remove(name)
            taken = self._fetch_newest(found) if resume else None
            _clear(self.fetched, taken)
            _clear(self.folder, self.folder / ".lock")
            if taken:
                (self.folder / taken.name).symlink_to(taken)

    def fetch(self):
        """The newest snapshot that is whole, in `fetched`."""
        with stores.failing(self.url, "its snapshots cannot be fetched"):
            taken = self._fetch_newest(self._contents())
        if taken is None:
            raise CleaveError(f"{self.url}: holds no snapshot", 1)
        return taken

    def _see_that_nobody_writes(self):
        """The runtime holds this lock while it trains (runtime/train/state/folder_lock.h)."""
        held = self.folder / ".lock"
        if held.exists():
            try:
                with stores.lock(held, self.url, ENDING_SECONDS):
                    pass
            except CleaveError:
                raise CleaveError(f"{self.url}: another run writes there ({held.read_text()})", 1) from None

    def _fetch_newest(self, found):
        whole = self._whole(found)
        for name in whole:
            problem = self._take(name, found[name])
            if problem is None:
                return self.fetched / (name or "snapshot")
            print(f"cleave: warning: {problem}; an older snapshot is taken, if there is one", file=sys.stderr)
        if whole:
            raise CleaveError(f"{self.url}: none of its snapshots is whole", 1)
        return None

    def _take(self, name, files):
        """Why a snapshot is not whole; None: it is in `fetched`."""
        where = f"{self._root}/{name}".rstrip("/")
        own = self.fetched / (name or "snapshot")
        marker = self._store.cat_file(f"{where}/{MARKER}")
        if own.exists() and (own / MARKER).read_bytes() == marker:
            return None
        try:
            wanted = _parts(marker)
        except (ValueError, KeyError, TypeError):
            return f"{self.url}/{name}: its {MARKER} is damaged"
        for file, size in wanted.items():
            if files.get(file) != size:
                return f"{self.url}/{name}/{file}: is missing or cut off"
        partial = self.fetched / f".{own.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        stores.download(self._store, {file: (f"{where}/{file}", size) for file, size in wanted.items()}, partial)
        (partial / MARKER).write_bytes(marker)
        if problem := self._check(partial):
            shutil.rmtree(partial)
            return f"{self.url}/{name}: {problem}"
        shutil.rmtree(own, ignore_errors=True)
        partial.rename(own)
        return None

    def has_all(self, name):
        """Whether this process alone has written a snapshot."""
        return all((self.folder / name / part).exists() for part in _parts((self.folder / name / MARKER).read_bytes()))

    def upload(self, name, devices, agree):
        """On every process, after the runtime has written a snapshot: `devices` are the process' own. agree(failure) meets the
        other processes, and raises where one of them has a failure. The snapshot is there in the end, or it is not."""
        def attempt(action):
            failure = None
            try:
                with stores.failing(self.url, f"the snapshot {name} was not uploaded"):
                    action()
            except CleaveError as error:
                failure = str(error)
            agree(failure)

        is_first = 0 in devices
        marker = self._store_path(name, MARKER)
        attempt(lambda: is_first and self._store.exists(marker) and self._store.rm_file(marker))
        attempt(lambda: [self._put(name, f"rank-{device:04}.safetensors") for device in devices])
        attempt(lambda: is_first and self._put(name, MARKER))
        if is_first:
            self._remove_old()

    def _store_path(self, name, file):
        return f"{self._root}/{name}/{file}"

    def _put(self, name, file):
        source, target = self.folder / name / file, self._store_path(name, file)
        self._store.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._store.put_file(str(source), target)
        self._store.invalidate_cache()
        if (size := self._store.info(target).get("size")) != source.stat().st_size:
            raise CleaveError(f"{self.url}/{name}/{file}: {size} bytes are there of {source.stat().st_size}", 1)

    def _remove_old(self):
        """All but the newest, and what interrupted uploads left. A store that removes nothing ends no training."""
        try:
            found = self._contents()
            kept = self._whole(found)[:KEPT]
            for name in found:
                if name not in kept:
                    self._remove(name)
        except Exception as error:
            print(f"cleave: warning: {self.url}: older snapshots stay: {error}", file=sys.stderr)

    def _remove(self, name):
        """Its marker first, so that a snapshot that is half removed is none. Nothing else below the URL is touched."""
        if not name:
            return
        if self._store.exists(self._store_path(name, MARKER)):
            self._store.rm_file(self._store_path(name, MARKER))
        self._store.rm(f"{self._root}/{name}", recursive=True)


def _parts(marker):
    """{file of a device: bytes}, as a manifest says."""
    return {f"rank-{rank:04}.safetensors": file["bytes"] for rank, file in enumerate(json.loads(marker)["files"])}


def _clear(folder, kept):
    for entry in folder.iterdir() if folder.exists() else ():
        if entry != kept:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
