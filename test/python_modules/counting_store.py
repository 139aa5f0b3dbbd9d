"""A store for tests, counted://NAME: the files of a folder, which keeps a list of what is fetched and uploaded, and can fail.

    store = CountingStore.of(folder)          # counted:// is this folder from now on
    store.failing = "rank-0001"               # uploads of files with this in their name fail
    store.calls()                             # ["get a/x.npz", "put s/step-00000003/rank-0000.safetensors"], of all processes
"""
import os
import pathlib
import shutil

import fsspec
from fsspec.spec import AbstractFileSystem


class CountingStore(AbstractFileSystem):
    protocol, cachable = "counted", False
    folder, failing, short = None, None, None

    @classmethod
    def of(cls, folder):
        cls.folder = pathlib.Path(folder)
        cls.folder.mkdir(exist_ok=True)
        fsspec.register_implementation("counted", cls, clobber=True)
        return cls

    @classmethod
    def calls(cls):
        log = cls.folder.with_suffix(".log")
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return sorted(lines)

    def _tell(self, what, path):
        with open(self.folder.with_suffix(".log"), "a") as log:
            log.write(f"{what} {path}\n")

    def _at(self, path):
        return self.folder / self._strip_protocol(path).lstrip("/")

    def info(self, path, **_):
        at = self._at(path)
        if not at.exists():
            raise FileNotFoundError(path)
        name, status = self._strip_protocol(path), at.stat()
        if at.is_dir():
            return {"name": name, "size": 0, "type": "directory"}
        return {"name": name, "size": status.st_size, "type": "file", "ETag": f"{status.st_mtime_ns}"}

    def ls(self, path, detail=True, **_):
        at = self._at(path)
        if at.is_file():
            entries = [self.info(path)]
        elif at.is_dir():
            entries = [self.info(f"{self._strip_protocol(path)}/{name}".lstrip("/")) for name in sorted(os.listdir(at))]
        else:
            raise FileNotFoundError(path)
        return entries if detail else [entry["name"] for entry in entries]

    def makedirs(self, path, exist_ok=False):
        self._at(path).mkdir(parents=True, exist_ok=exist_ok)

    def get_file(self, rpath, lpath, **_):
        self._tell("get", rpath)
        content = self._at(rpath).read_bytes()
        pathlib.Path(lpath).write_bytes(content[:-1] if self.short and self.short in rpath else content)

    def put_file(self, lpath, rpath, **_):
        self._tell("put", rpath)
        if self.failing and self.failing in rpath:
            self._at(rpath).write_bytes(b"half")
            raise ConnectionResetError("the connection was reset")
        shutil.copyfile(lpath, self._at(rpath))

    def cat_file(self, path, start=None, end=None, **_):
        return self._at(path).read_bytes()[start:end]

    def rm_file(self, path):
        self._tell("remove", path)
        at = self._at(path)
        at.rmdir() if at.is_dir() else at.unlink()
