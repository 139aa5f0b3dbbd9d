#!/usr/bin/env python3
"""Are the documents in order? Every link leads to a page and a heading that are there, files named in backticks and in the
comments of sources exist, commands in code blocks have only subcommands and flags that `cleave` has, Python in them is Python,
a page of docs/internals has at most 200 lines, pages are reachable from docs/README.md, and sentences begin with their subject.

    check_documents.py ROOT
"""
import ast
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "compiler/planner/README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FOLDERS = ("compiler/", "runtime/", "dialects/", "tools/", "test/", "docs/", "models/", "cmake/", "package/")
faults = []


def anchors(page):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def files(name):
    """`a/b.{h,cpp}` are two files; a pattern with *, <...>, spaces or a word in capitals names none."""
    if re.search(r"[*<\s]|[A-Z]{4}", name):
        return []
    if match := re.fullmatch(r"(.*)\{(.*)\}(.*)", name):
        return [match.group(1) + choice + match.group(3) for choice in match.group(2).split(",")]
    return [name]


@functools.cache
def flags_of(subcommand):
    """None where `cleave` has no such subcommand."""
    run = subprocess.run(["cleave", subcommand, "--help"], capture_output=True, text=True)
    return set(re.findall(r"--[a-z][\w-]*", run.stdout)) if run.returncode == 0 else None


def commands(block):
    """Subcommand and flags of each call of cleave in a code block."""
    for line in re.sub(r"\\\n", " ", block).splitlines():
        for call in re.findall(r"(?:^|[\s;&|])cleave\s+([a-z][\w-]*\s[^;&|#]*|[a-z][\w-]*$)", line):
            yield call.split()[0], re.findall(r"(?<=\s)--[a-z][\w-]*", call)


linked = set()
for page in PAGES:
    text, name = page.read_text(), page.relative_to(ROOT)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        linked.add(target)
        if not target.exists():
            faults.append(f"{name}: no file {link}")
        elif anchor and anchor not in anchors(target):
            faults.append(f"{name}: no heading {link}")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            try:
                ast.parse(block)
            except SyntaxError as error:
                faults.append(f"{name}: {error.msg} in Python: {(error.text or '').strip()}")
        for subcommand, flags in commands(block) if language in ("", "sh") else []:
            if (known := flags_of(subcommand)) is None:
                faults.append(f"{name}: no command cleave {subcommand}")
            faults += [f"{name}: cleave {subcommand} has no {flag}" for flag in flags if known is not None and flag not in known]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", prose):
        for file in files(code) if code.startswith(FOLDERS) else []:
            if not (ROOT / file.rstrip("/")).exists() and not list(ROOT.glob(file + ".*")):
                faults.append(f"{name}: no file {file}")
    for sentence in re.findall(r"(?:^|[.:] |\n\n|- )(Of [a-z][^.]{0,40}|What [^?.]{0,60}\.)", prose):
        faults.append(f"{name}: begins without its subject: {sentence}")
    if "internals" in page.parts and text.count("\n") > 200:
        faults.append(f"{name}: more than 200 lines")
for source in subprocess.run(["git", "-C", ROOT, "ls-files", "*.h", "*.cpp", "*.td", "*.py"], capture_output=True, text=True).stdout.split():
    for comment in re.findall(r"(?://|#) (.*)", (ROOT / source).read_text(errors="replace")):
        for file in re.findall(r"(?:%s)[\w./-]*\.(?:h|cpp|td|md|py|test|yaml)\b" % "|".join(FOLDERS), comment):
            if not (ROOT / file).exists():
                faults.append(f"{source}: no file {file}")
for page in PAGES[3:]:
    if page not in linked and page != ROOT / "docs/README.md":
        faults.append(f"{page.relative_to(ROOT)}: no page leads there")
print("\n".join(faults) or f"{len(PAGES)} pages are in order")
sys.exit(bool(faults))
