"""Checks the layout: include rules, pass tables, file names and sizes. Exits with 1 and one line per problem."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "braze"
LONGEST = 800
EMPTY_NAMES = {"utils", "util", "common", "misc", "helpers", "helper"}
TORCH_FREE = {"support", "sym", "graph", "capture", "decompose", "rewrite", "partition", "loop", "schedule", "codegen", "jit"}
PYTHON_FREE = TORCH_FREE - {"capture"}


def read_layers():
    uses, extra = {}, set()
    for line in (SOURCE / "layers.def").read_text().splitlines():
        if m := re.fullmatch(r"layer (\w+)(?:: ([\w ]+))?", line):
            uses[m[1]] = set((m[2] or "").split()) | ({"support"} - {m[1]})
        elif m := re.fullmatch(r"edge (\w+) (\w+): .+", line):
            extra.add((m[1], m[2]))
        elif line and not line.startswith("#"):
            raise SystemExit(f"layers.def: cannot read {line!r}")
    closed = {}

    def closure(folder):
        if folder not in closed:
            closed[folder] = set(uses[folder])
            for other in uses[folder]:
                closed[folder] |= closure(other)
        return closed[folder]

    for folder in uses:
        closure(folder)
    return closed, extra


def check_includes():
    allowed, extra = read_layers()
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".def") or path.parent == SOURCE:
            continue
        folder = path.relative_to(SOURCE).parts[0]
        if folder not in allowed:
            yield f"{path}: folder {folder} has no row in layers.def"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'\s*#include\s+["<]([^">]+)[">]', line)
            if not m:
                continue
            target = m[1]
            if target.startswith("braze/"):
                other = target.split("/")[1]
                if other != folder and other not in allowed[folder] and (folder, other) not in extra:
                    yield f"{path}:{number}: {folder} may not include {other}"
            elif re.match(r"(ATen|c10|torch|caffe2)/", target) and folder in TORCH_FREE:
                yield f"{path}:{number}: {folder} knows no torch"
            elif re.fullmatch(r"(Python|frameobject)\.h|internal/pycore_.*", target) and folder in PYTHON_FREE:
                yield f"{path}:{number}: {folder} knows no Python"


def check_names_and_sizes():
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if parts[0] in (".git", ".venv", "build", "dist") or "__pycache__" in parts or not path.is_file():
            continue
        if path.suffix in (".h", ".cpp", ".py"):
            if path.stem in EMPTY_NAMES:
                yield f"{path}: a name that tells nothing"
            lines = len(path.read_text().splitlines())
            if lines > LONGEST:
                yield f"{path}: {lines} lines; split it by subject"


def check_passes():
    table = SOURCE / "rewrite" / "passes.def"
    if not table.exists():
        yield f"{table}: missing"
        return
    for name in re.findall(r"^PASS\((\w+)", table.read_text(), flags=re.M):
        if not (SOURCE / "rewrite" / f"{name}.cpp").exists():
            yield f"pass {name} has no file rewrite/{name}.cpp"
        if not list((ROOT / "test" / "lit" / "rewrite").glob(f"{name}*.bz")):
            yield f"pass {name} has no test test/lit/rewrite/{name}*.bz"


def main():
    problems = [p for check in (check_includes, check_names_and_sizes, check_passes) for p in check()]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
