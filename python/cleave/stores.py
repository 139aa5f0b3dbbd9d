"""Files of object stores, named by URLs such as s3://bucket/corpus.bin, by way of fsspec.

    path = fetched("s3://bucket/corpus.bin")    # of this host's cache: complete, and what the store has now

The cache is $CLEAVE_CACHE_DIR, $XDG_CACHE_HOME/cleave or ~/.cache/cleave. Nothing of it is removed but by its owner.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import time
import warnings

from cleave._tool import CleaveError

LOCK_SECONDS = 1800  # for another process of this host that fetches the same
# Parts of the names that stores give to what they say of a file's version.
VERSIONS = ("etag", "mtime", "modified", "created", "updated", "md5", "checksum", "digest", "generation", "version", "sha", "crc",
            "oid", "commit")


def is_url(path):
    return isinstance(path, str) and re.match(r"[A-Za-z0-9+.:-]+://", path) is not None


def store_of(url):
    """fsspec's file system of a URL, and the path there without an end of slashes."""
    try:
        import fsspec.core
    except ImportError:
        raise CleaveError(f"{url}: URLs need fsspec: pip install fsspec", 2) from None
    with failing(url, "cannot be opened"):
        store, path = fsspec.core.url_to_fs(url)
        store.invalidate_cache()  # of what an earlier call listed
    return store, path.rstrip("/")


@contextlib.contextmanager
def failing(url, what):
    """Stores raise what their libraries do: here it becomes a CleaveError that names the URL."""
    try:
        yield
    except CleaveError:
        raise
    except Exception as error:
        raise CleaveError(f"{url}: {what}: {str(error) or type(error).__name__}", 1) from error


def files_below(store, path):
    """What the store says of each file by its name below `path`, "" of `path` itself; empty where there is nothing."""
    store.invalidate_cache()
    try:
        about = store.info(path)
        if about["type"] == "file":
            return {"": about}
        found = store.find(path, detail=True)
    except FileNotFoundError:
        return {}
    names = {name[len(path):].lstrip("/") if name.startswith(path) else name: about for name, about in found.items()}
    for name in names:
        if ".." in name.split("/") or name.startswith("/"):
            raise CleaveError(f"{path}: the store has a file of the name {name!r}, which has no place below it", 1)
    return names


def cache_folder(kind):
    """The folder of the cache for one kind of content; it is made."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(os.environ.get("CLEAVE_CACHE_DIR") or os.path.join(home, "cleave"), kind).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CleaveError(f"{folder}: cannot be made: {error.strerror}; CLEAVE_CACHE_DIR gives another place", 1) from None
    return folder


def key_of(*parts):
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def lock(path, url, seconds=None):
    """One process of this host at a time. The system frees the lock when its process ends, however that ends."""
    seconds = LOCK_SECONDS if seconds is None else seconds
    until = time.monotonic() + seconds
    with open(path, "a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise CleaveError(f"{url}: another process has held {path} for {seconds} s", 4) from None
                time.sleep(0.05)
            except OSError as error:
                raise CleaveError(f"{path}: cannot be locked: {error.strerror}; CLEAVE_CACHE_DIR gives another place", 1) from None
        yield


def download(store, sources, folder):
    """Fetches files, {name: (path in the store, bytes or None)}, into a folder, each whole."""
    targets = [folder / name for name in sources]
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
    store.get([path for path, _ in sources.values()], [str(target) for target in targets])
    for target, (path, size) in zip(targets, sources.values()):
        if size is not None and target.stat().st_size != size:
            raise CleaveError(f"{path}: {target.stat().st_size} bytes came of {size}", 1)


def fetched(url):
    """The file, or the folder with all files below it, of a URL: in the cache, by the URL and the version of each file."""
    store, path = store_of(url)
    with failing(url, "cannot be read"):
        about = files_below(store, path)
    if not about:
        raise CleaveError(f"{url}: there is no such file or folder", 1)
    versions = _versions(url, about)
    folder = cache_folder("data") / key_of(url, versions)
    place = folder / (path.rsplit("/", 1)[-1].partition("?")[0] or "data")
    with lock(f"{folder}.lock", url):
        if not place.exists():
            partial = folder.with_name(f".{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)  # of a process that died
            with failing(url, "cannot be fetched"):
                into = partial / place.name
                download(store, {str(into / name if name else into): (f"{path}/{name}".rstrip("/"), entry.get("size"))
                                 for name, entry in about.items()}, partial)
                if _versions(url, files_below(store, path)) != versions:
                    raise CleaveError(f"{url}: has changed while it was fetched", 1)
            partial.rename(folder)
    return place


def _versions(url, about):
    told = {}
    for name, entry in sorted(about.items()):
        words = {key: str(value) for key, value in sorted(entry.items())
                 if value is not None and any(word in key.lower() for word in VERSIONS)}
        if not words:
            warnings.warn(f"{url}: the store does not tell a version of its files, only their sizes: remove the cache's copy "
                          "when they change", stacklevel=2)
        told[name] = [entry.get("size"), words]
    return told
