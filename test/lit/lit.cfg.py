# FileCheck tests: `lit test/lit`. BRAZE_BUILD names the build folder (default build/release).
import os
import pathlib
import shutil

import lit.formats

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(os.environ.get("BRAZE_BUILD", root / "build" / "release")).resolve()

config.name = "braze"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".bz"]
config.test_source_root = str(root / "test" / "lit")
config.test_exec_root = str(build / "test" / "lit")

filecheck = shutil.which("FileCheck") or shutil.which("FileCheck-19") or "FileCheck"
tool = build / "tools" / "braze-opt" / "braze-opt"
config.substitutions += [("FileCheck", filecheck), ("%opt", str(tool)), ("braze-opt", str(tool))]
