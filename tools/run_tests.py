"""Runs every test: layout, C++ unit tests, lit with FileCheck, pytest, and capture's tests on the other versions of Python
that are installed with headers. Ends with one line 'N passed, N failed, N skipped'.

usage: run_tests.py [--build DIR] [--full]     --full adds the long tests (label "full")
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

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
        pytest_run(totals, f"pytest {folder}", [sys.executable, "-m", "pytest", "-q", *stop, folder, *marks], env)


def pytest_run(totals, name, command, env):
    result = run(name, command, env)
    print(result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "no output", flush=True)
    tail = result.stdout[-4000:]
    failed = count(r"(\d+) (?:failed|error)", tail)
    totals.add(count(r"(\d+) passed", tail), max(failed, result.returncode not in (0, 5)), count(r"(\d+) skipped", tail))


OTHER_PYTHONS = ("3.12", "3.13")
CAPTURE_TESTS = ("opcodes", "versions", "breaks", "frames", "memory", "conformance")   # with a tensor domain of their own: no torch


def find_python(version):
    """An interpreter of this version with its headers, on PATH or installed by pyenv; or None."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    probe = "import os, sys, sysconfig; print('%d.%d' % sys.version_info[:2], " \
            "os.path.exists(sysconfig.get_path('include') + '/internal/pycore_frame.h'))"
    for path in [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))]:
        if path is None:
            continue
        result = subprocess.run([str(path), "-c", probe], capture_output=True, text=True)
        if result.stdout.split() == [version, "True"]:
            return str(path)
    return None


def other_pythons(totals):
    tools = pathlib.Path(sys.executable).parent
    for version in OTHER_PYTHONS:
        if version == "%d.%d" % sys.version_info[:2]:
            continue
        python = find_python(version)
        if python is None:
            print(f"== capture on Python {version}: skipped, there is no python{version} with headers", flush=True)
            totals.skipped += 1
            continue
        build = ROOT / "build" / f"python{version}"
        configure = [str(tools / "cmake"), "-G", "Ninja", "-S", ".", "-B", str(build), f"-DPython_EXECUTABLE={python}",
                     f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DBRAZE_TORCH=OFF", "-DBRAZE_CLANG=OFF"]
        make = [str(tools / "cmake"), "--build", str(build), "--target", "_capture_test", "test_capture"]
        if any(run(f"capture on Python {version}: {step}", command).returncode
               for step, command in (("configure", configure), ("build", make))):
            totals.failed += 1
            continue
        unit(totals, build)
        # pytest is pure Python: that of this interpreter does.
        env = dict(os.environ, BRAZE_BUILD=str(build), PYTHONPATH=sysconfig.get_path("purelib"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        files = [f"test/python/test_capture_{name}.py" for name in CAPTURE_TESTS]
        pytest_run(totals, f"pytest on Python {version}",
                   [python, "-m", "pytest", "-q", "-m", "not full", "-p", "no:cacheprovider", *files], env)


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
    other_pythons(totals)
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
