"""The module _capture_test of the build under test, and lists of programs to run through it."""
import os
import pathlib
import sys

import pytest

_BUILD = pathlib.Path(os.environ.get("BRAZE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build" / "release"))
sys.path.insert(0, str(_BUILD / "test"))
ct = pytest.importorskip("_capture_test", reason="built without tests")


def program_list():
    """A list of test parameters (function, arguments), and the decorator that adds a function to it."""
    programs = []

    def program(*args):
        def register(fn):
            programs.append(pytest.param(fn, args, id=fn.__name__))
            return fn
        return register
    return programs, program
