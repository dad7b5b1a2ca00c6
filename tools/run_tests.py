"""Runs every test: layout, C++ unit tests, lit with FileCheck, pytest. Ends with one line 'N passed, N failed, N skipped'.

usage: run_tests.py [--build DIR] [--full]     --full adds the long tests (label "full")
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, passed, failed, skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped


def run(name, command, env=None):
    print(f"== {name}", flush=True)
    result = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        print(result.stdout, flush=True)
    return result


def count(pattern, text):
    return sum(int(n) for n in re.findall(pattern, text))


def layout(totals):
    result = run("layout", [sys.executable, "test/layout/check_layout.py"])
    totals.add(result.returncode == 0, result.returncode != 0)


def unit(totals, build):
    for program in sorted((build / "test").glob("test_*")):
        if not os.access(program, os.X_OK) or not program.is_file():
            continue
        result = run(f"unit: {program.name}", [str(program)])
        m = re.search(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed(?: \|\s*(\d+) skipped)?", result.stdout)
        if m and result.returncode in (0, 1):
            totals.add(int(m[2]), int(m[3]), int(m[4] or 0))
        else:
            totals.add(0, 1)


def lit(totals, build):
    if not (ROOT / "test" / "lit" / "lit.cfg.py").exists():
        return
    env = dict(os.environ, BRAZE_BUILD=str(build))
    result = run("lit", [str(pathlib.Path(sys.executable).with_name("lit")), "-sv", "test/lit"], env)
    passed = count(r"Passed\s*:\s*(\d+)", result.stdout)
    failed = count(r"(?:Failed|Unresolved|Timed Out|Unexpectedly Passed)\s*:\s*(\d+)", result.stdout)
    totals.add(passed, max(failed, result.returncode != 0), count(r"(?:Unsupported|Skipped)\s*:\s*(\d+)", result.stdout))


# test/trace has a process of its own: its extension and braze's both register the tracer's kernels.
PYTEST_FOLDERS = ("test/python", "test/trace")


def pytest(totals, build, full):
    env = dict(os.environ, BRAZE_BUILD=str(build))
    marks = [] if full else ["-m", "not full"]
    stop = ["-x"] if os.environ.get("CI") is None else []
    for folder in PYTEST_FOLDERS:
        result = run(f"pytest {folder}", [sys.executable, "-m", "pytest", "-q", *stop, folder, *marks], env)
        print(result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "no output", flush=True)
        tail = result.stdout[-4000:]
        failed = count(r"(\d+) (?:failed|error)", tail)
        totals.add(count(r"(\d+) passed", tail), max(failed, result.returncode not in (0, 5)), count(r"(\d+) skipped", tail))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release", type=lambda s: (ROOT / s).resolve())
    p.add_argument("--full", action="store_true")
    args = p.parse_args()
    totals = Totals()
    layout(totals)
    unit(totals, args.build)
    lit(totals, args.build)
    pytest(totals, args.build, args.full)
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
