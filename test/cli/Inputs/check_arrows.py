"""Reads every #include of the sources and checks that it follows the arrows of docs/internals/architecture.md.

    check_arrows.py ROOT

A folder may use what its line names, and itself. The longest prefix of a path says whose line counts.
"""
import pathlib
import re
import sys

RUNTIME = ["runtime/base", "runtime/plan", "runtime/engine", "runtime/train", "runtime/check"]
WITHOUT_MLIR = ["compiler/tuning.h", "compiler/elements/buffer_alignment.h", "compiler/schedule", "compiler/cluster",
                "compiler/recipe", "compiler/planner", "compiler/calibrate", "compiler/simulate", "compiler/report"]
ARROWS = {
    **{room: RUNTIME[:i] for i, room in enumerate(RUNTIME)},  # each uses those before it
    "runtime/capi": RUNTIME,
    "dialects": ["mlir", "runtime/base"],
    **{room: [*WITHOUT_MLIR[:i], "runtime/base", "runtime/plan"] for i, room in enumerate(WITHOUT_MLIR)},
    "compiler": ["mlir", "dialects", *WITHOUT_MLIR, "runtime/base", "runtime/plan", "runtime/check"],
    "tools": ["mlir", "dialects", "compiler", *WITHOUT_MLIR, *RUNTIME],
}
# (prefix of a file, prefix of a header) that stand yet. One that nothing needs any more is an error.
EXCEPTIONS = {
    ("compiler/driver/compile.cpp", "runtime/train/data/"),       # which inputs of a step the data fills
    ("compiler/driver/pipeline.cpp", "runtime/train/state/"),     # a snapshot's recipe, to resume from
    ("compiler/export/trained_model", "runtime/train/state/"),  # a snapshot's weights
}
GENERATED = {"plan/plan.pb.h": "runtime/plan", "plan/graph.pb.h": "runtime/plan"}


def room_of(path):
    if path in GENERATED:
        return GENERATED[path]
    if re.match(r"(mlir|llvm|llvm-c)/", path):
        return "mlir"
    return max((room for room in ARROWS if path == room or path.startswith(room + "/")), key=len, default=None)


def main(root):
    needed, wrong = set(), []
    sources = [path for top in ("runtime", "dialects", "compiler", "tools") for path in sorted((root / top).rglob("*"))
               if path.suffix in (".h", ".cpp", ".td")]
    for source in sources:
        file = str(source.relative_to(root))
        for number, line in enumerate(source.read_text().splitlines(), 1):
            found = re.match(r'\s*#?include ["<]([^">]+)', line)
            used, user = room_of(found[1]) if found else None, room_of(file)
            if used is None or used == user or used in ARROWS[user]:
                continue
            excused = {pair for pair in EXCEPTIONS if file.startswith(pair[0]) and found[1].startswith(pair[1])}
            needed |= excused
            if not excused:
                wrong.append(f"{file}:{number}: {user} may not use {found[1]} ({used})")
    wrong += [f"exception {pair} is not needed any more" for pair in sorted(EXCEPTIONS - needed)]
    print("\n".join(wrong) or f"{len(sources)} sources follow the arrows")
    return 1 if wrong or len(sources) < 500 else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
