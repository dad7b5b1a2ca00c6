"""The module _capture_test of the build under test."""
import os
import pathlib
import sys

import pytest

_BUILD = pathlib.Path(os.environ.get("BRAZE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build" / "release"))
sys.path.insert(0, str(_BUILD / "test"))
ct = pytest.importorskip("_capture_test", reason="built without tests")
