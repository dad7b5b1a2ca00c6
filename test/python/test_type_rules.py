"""Every native type rule against the real CPU kernel: dtype, sizes, strides, storage offset of each result."""

import collections
import os
import pathlib
import shutil
import subprocess
import warnings

import pytest
import torch
from type_rules_cases import FAMILIES

DTYPES = {torch.bool: "b8", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
          torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32",
          torch.float64: "f64", torch.complex64: "c64", torch.complex128: "c128", torch.complex32: "c32",
          torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64"}
FORMATS = {torch.contiguous_format: "contiguous_format", torch.preserve_format: "preserve_format",
           torch.channels_last: "channels_last", torch.channels_last_3d: "channels_last_3d"}
SEPARATOR = "// -----\n"
SKIP = object()


def braze_opt():
    """The program, from BRAZE_OPT, the search path or the newest build folder."""
    if path := os.environ.get("BRAZE_OPT") or shutil.which("braze-opt"):
        return path
    root = pathlib.Path(__file__).parents[2]
    found = sorted(root.glob("build/**/braze-opt/braze-opt"), key=lambda p: p.stat().st_mtime)
    if not found:
        pytest.skip("braze-opt is not built")
    return str(found[-1])


def type_text(t):
    """A tensor's type as the IR prints it."""
    if t is None:
        return "undef"
    stride, contiguous = 1, []
    for size in reversed(t.shape):
        contiguous.insert(0, stride)
        stride *= max(size, 1)
    text = f"{DTYPES[t.dtype]}[{', '.join(map(str, t.shape))}]"
    if list(t.stride()) != contiguous:
        text += "{" + ", ".join(map(str, t.stride())) + "}"
    if t.storage_offset() != 0:
        text += f" offset {t.storage_offset()}"
    return text


class CallText:
    """One call as a one-node graph whose result types are left out."""

    def __init__(self, op, args, kwargs, results):
        self.inputs = []
        parts = [self.argument(a) for a in args] + [f"{k}={self.argument(v)}" for k, v in kwargs.items()]
        names = ", ".join(f"%r{i}" for i in range(results))
        self.text = f"graph @g({', '.join(self.inputs)}) {{\n  {names} = {op}({', '.join(parts)})\n  return\n}}\n"

    def argument(self, value):
        if isinstance(value, torch.Tensor):
            self.inputs.append(f"%x{len(self.inputs)}: {type_text(value)}")
            return f"%x{len(self.inputs) - 1}"
        if value is None:
            return "none"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, complex):
            return f"complex({float(value.real)!r}, {float(value.imag)!r})"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.argument, value)) + "]"
        if isinstance(value, torch.dtype):
            return DTYPES[value]
        if isinstance(value, torch.memory_format):
            return FORMATS[value]
        if isinstance(value, str):
            return f'"{value}"'
        return repr(value)


def flat(result):
    if result is None or isinstance(result, torch.Tensor):
        return [result]
    return [t for item in result for t in flat(item)]


def run_eager(op, args, kwargs):
    """The result types as text, or None if eager raises."""
    packet, _, overload = op.removeprefix("aten.").partition(".")
    function = getattr(getattr(torch.ops.aten, packet), overload or "default")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return [type_text(t) for t in flat(function(*args, **kwargs))]
    except Exception as error:  # noqa: BLE001: whatever eager raises is the answer
        assert not isinstance(error, AttributeError), error
        return SKIP if "ZeroDivision" in str(error) else None


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_equal_kernels(family):
    torch.manual_seed(0)
    cases, texts = [], []
    for op, args, kwargs in FAMILIES[family]():
        expected = run_eager(op, args, kwargs)
        if expected is SKIP or expected == []:
            continue
        call = CallText(op, args, kwargs, len(expected) if expected is not None else 1)
        cases.append((op, call.text, expected))
        texts.append(call.text)
    output = subprocess.run([braze_opt(), "--types", "--split"], input=SEPARATOR.join(texts), text=True,
                            capture_output=True, check=False).stdout
    answers = output.split(SEPARATOR)
    assert len(answers) == len(cases)

    wrong, covered, accepted = [], collections.Counter(), collections.Counter()
    for (op, text, expected), answer in zip(cases, answers, strict=True):
        answer = answer.strip()
        is_type = not answer.startswith("error:")
        call = text.replace("\n", " ")
        if expected is None:
            if is_type:
                accepted[op] += 1
                wrong.append(f"eager raises, the rule gives {answer}: {call}")
        elif is_type:
            covered[op] += 1
            if answer != ", ".join(expected):
                wrong.append(f"{answer} but eager {', '.join(expected)}: {call}")
        elif "expected" in answer and "no native" not in answer and "no result types" not in answer:
            wrong.append(f"{answer}: {call}")
    uncovered = sorted({op for op, _, expected in cases if expected is not None} - set(covered))
    report = collections.Counter(w.split(" = ")[1].split("(")[0] for w in wrong)
    first = {}
    for w in wrong:
        first.setdefault(w.split(" = ")[1].split("(")[0], w)
    assert not wrong, f"{len(wrong)} of {len(cases)} wrong: {report}\n" + "\n".join(first.values())
    assert not uncovered, f"no case of these ops is covered by its rule: {uncovered}"
