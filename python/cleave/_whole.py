"""Files that a reader finds old or new, never half of one."""
import contextlib
import os
import pathlib
import tempfile

from cleave._tool import CleaveError


@contextlib.contextmanager
def whole(path):
    """Gives a path of the same name in a folder of its own beside. All files of that folder are put in place at the end, `path`
    last, or none. What is no file, such as a pipe, is written straight to."""
    path = pathlib.Path(path)
    if path.exists() and not path.is_file() or str(path).startswith(("/dev/", "/proc/")):
        yield path
        return
    place = pathlib.Path(os.path.realpath(path))
    try:
        with tempfile.TemporaryDirectory(prefix=f"{place.name[:100]}.", suffix=".partial", dir=place.parent) as folder:
            yield pathlib.Path(folder, place.name)
            for file in sorted(pathlib.Path(folder).iterdir(), key=lambda file: file.name == place.name):
                os.replace(file, place.parent / file.name)
    except OSError as error:
        raise CleaveError(f"{path}: cannot be written: {error.strerror or error}", 1) from error
