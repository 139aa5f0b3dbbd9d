#!/usr/bin/env python3
"""Download one file of a release from the package index that pip uses, and check its SHA-256.

    fetch_from_index.py PROJECT FILENAME SHA256 FOLDER

`pip download` is not used because it builds a source archive's metadata, which for ONNX means compiling it.
The file is left alone if it is already there and right.
"""
import hashlib
import html.parser
import pathlib
import subprocess
import sys
import urllib.parse
import urllib.request


class Links(html.parser.HTMLParser):
    """Collects the link targets of a PEP 503 page by file name."""

    def __init__(self, base):
        super().__init__()
        self.base, self.found = base, {}

    def handle_starttag(self, tag, attrs):
        href = dict(attrs).get("href")
        if tag == "a" and href:
            url, _ = urllib.parse.urldefrag(urllib.parse.urljoin(self.base, href))
            self.found[urllib.parse.unquote(url.rsplit("/", 1)[-1])] = url


def index_url():
    """The index pip is configured with, or pip's own default."""
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.strip()
    import os
    if os.environ.get("PIP_INDEX_URL"):
        return os.environ["PIP_INDEX_URL"]
    from pip._internal.models.index import PyPI
    return PyPI.simple_url


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(project, filename, sha256, folder):
    target = pathlib.Path(folder) / filename
    if target.exists() and digest(target) == sha256:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    page = index_url().rstrip("/") + "/" + project.lower() + "/"
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = Links(answer.geturl())
        links.feed(answer.read().decode())
    if filename not in links.found:
        sys.exit(f"{filename} is not offered by the package index (project {project})")
    part = target.with_suffix(".part")
    with urllib.request.urlopen(links.found[filename], timeout=300) as answer:
        part.write_bytes(answer.read())
    if digest(part) != sha256:
        sys.exit(f"{filename}: SHA-256 is {digest(part)}, expected {sha256}")
    part.rename(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
