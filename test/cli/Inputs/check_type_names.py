"""check_type_names.py FOLDER...: every struct, class and enum of a namespace is defined in one file.

Two types of one name in one namespace compile, and then templates of one are linked in the place of the other's: a vector
of the larger has room for the smaller. Types in a file's unnamed namespace are its own.
"""
import collections
import pathlib
import re
import sys

NAMESPACE = re.compile(r"\s*(?:inline\s+)?namespace(?:\s+([\w:]+))?\s*\{")
TYPE = re.compile(r"\s*(?:template\s*<.*>\s*)?(?:struct|class|enum class|enum)\s+(\w+)(?!\w|::)[^;()]*\{")
files = collections.defaultdict(set)
for path in sorted(path for folder in sys.argv[1:] for path in pathlib.Path(folder).rglob("*")
                   if path.suffix in (".h", ".cpp", ".cu")):
    depth, spaces = 0, []  # spaces: the namespaces that are open, and the depth outside of each
    for line in path.read_text(errors="replace").splitlines():
        line = re.sub(r'"(\\.|[^"\\])*"', '""', line.split("//")[0])
        if space := NAMESPACE.match(line):
            spaces.append((depth, space[1]))
        elif (found := TYPE.match(line)) and depth == len(spaces) and all(name for _, name in spaces):
            files["::".join([name for _, name in spaces] + [found[1]])].add(str(path))
        depth += line.count("{") - line.count("}")
        while spaces and depth <= spaces[-1][0]:
            spaces.pop()
several = {name: paths for name, paths in files.items() if len(paths) > 1}
assert len(files) > 0, "no types found"
for name, paths in several.items():
    print(f"{name} is defined in {' and in '.join(sorted(paths))}")
print(f"{len(files)} types, {len(several)} in several files")
sys.exit(1 if several else 0)
