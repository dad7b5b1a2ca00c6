"""Every native type rule against the real CPU kernel: dtype, sizes, strides, storage offset of each result; once with
constant sizes, once with symbolic ones, whose results are evaluated at the real sizes."""

import collections
import os
import pathlib
import random
import re
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
SEED = 11
PER_OP = [40, pytest.param(100_000, marks=pytest.mark.full)]


ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BRAZE_BUILD", ROOT / "build" / "release"))
BRAZE_OPT = BUILD / "tools" / "braze-opt" / "braze-opt"


# The layouts of some convolutions depend on what oneDNN can do on this machine.
WITHOUT = [name for name, supported in (("onednn_bf16", torch.ops.mkldnn._is_mkldnn_bf16_supported),
                                        ("onednn_f16", torch.ops.mkldnn._is_mkldnn_fp16_supported)) if not supported()]


def infer(texts):
    """The answers of braze-opt --types, one per graph."""
    output = subprocess.run([BRAZE_OPT, "--types", "--split", f"--without={','.join(WITHOUT)}"], input=SEPARATOR.join(texts), text=True,
                            capture_output=True, check=False).stdout
    answers = [answer.strip() for answer in output.split(SEPARATOR)]
    assert len(answers) == len(texts)
    return answers


def contiguous(sizes):
    stride, strides = 1, []
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride *= max(size, 1)
    return strides


def type_text(t):
    """A tensor's type as the IR prints it."""
    if t is None:
        return "undef"
    text = f"{DTYPES[t.dtype]}[{', '.join(map(str, t.shape))}]"
    if list(t.stride()) != contiguous(t.shape):
        text += "{" + ", ".join(map(str, t.stride())) + "}"
    if t.storage_offset() != 0:
        text += f" offset {t.storage_offset()}"
    return text


def symbolic_type_text(t):
    """The same with each size n of 2 and more as the symbol sn; None if the strides are not those of a dense tensor."""
    if t.storage_offset() != 0:
        return None
    sizes = [f"s{n}" if n >= 2 else str(n) for n in t.shape]
    text = f"{DTYPES[t.dtype]}[{', '.join(sizes)}]"
    if list(t.stride()) == contiguous(t.shape):
        return text
    strides, product, value = [""] * t.dim(), "1", 1
    for d in sorted(range(t.dim()), key=lambda d: (t.stride(d), t.shape[d])):
        if t.stride(d) != value:
            return None
        strides[d] = product
        product, value = f"{product}*{sizes[d]}", value * t.shape[d]
    return text + "{" + ", ".join(strides) + "}"


def evaluated(answer):
    """The types of an answer with symbols, as [(dtype, sizes, strides, offset)]."""
    out = []
    for text in re.split(r", (?=[a-z]+\d*\w*\[|undef)", answer):
        if text == "undef":
            out.append(None)
            continue
        m = re.fullmatch(r"(\w+)\[(.*?)\](?:\{(.*?)\})?(?: offset (.*))?", text)
        names = {f"s{n}": n for n in range(2, 200)} | {"min": min, "max": max}
        numbers = [list(eval(f"[{part or ''}]", {}, names)) for part in (m[2], m[3], m[4])]
        strides = numbers[1] if m[3] is not None else contiguous(numbers[0])
        out.append((m[1], numbers[0], strides, (numbers[2] or [0])[0]))
    return out


class CallText:
    """One call as a one-node graph whose result types are left out."""

    def __init__(self, op, args, kwargs, results, type_text=type_text):
        self.inputs = []
        self.type_text = type_text
        parts = [self.argument(a) for a in args] + [f"{k}={self.argument(v)}" for k, v in kwargs.items()]
        names = ", ".join(f"%r{i}" for i in range(results))
        self.text = f"graph @g({', '.join(self.inputs)}) {{\n  {names} = {op}({', '.join(parts)})\n  return\n}}\n"

    def argument(self, value):
        if isinstance(value, torch.Tensor):
            self.inputs.append(f"%x{len(self.inputs)}: {self.type_text(value)}")
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


def calls_of(family, per_op, type_text=type_text):
    """[(op, text, expected)]: the types that eager gives, or None where it raises. At most per_op calls of each op."""
    torch.manual_seed(0)
    by_op = collections.defaultdict(list)
    for case in FAMILIES[family]():
        by_op[case[0]].append(case)
    chosen = [c for cases in by_op.values() for c in random.Random(SEED).sample(cases, min(per_op, len(cases)))]
    out = []
    for op, args, kwargs in chosen:
        expected = run_eager(op, args, kwargs)
        if expected is not SKIP and expected != []:
            results = len(expected) if expected is not None else 1
            out.append((op, CallText(op, args, kwargs, results, type_text).text, expected))
    return out


def summary(wrong, total):
    """The counts by op, and the first problem of each op."""
    first = {}
    for op, problem in wrong:
        first.setdefault(op, problem.replace("\n", " "))
    return f"{len(wrong)} of {total} wrong: {collections.Counter(op for op, _ in wrong)}\n" + "\n".join(first.values())


@pytest.mark.parametrize("per_op", PER_OP)
@pytest.mark.parametrize("family", FAMILIES)
def test_rules_equal_kernels(family, per_op):
    cases = calls_of(family, per_op)
    wrong, covered = [], set()
    for (op, text, expected), answer in zip(cases, infer([c[1] for c in cases]), strict=True):
        if answer.startswith("error:"):
            # The rule may pass; the text itself must be right.
            if expected is not None and "type rule" not in answer and "result types" not in answer:
                wrong.append((op, f"{answer}: {text}"))
        elif expected is None:
            wrong.append((op, f"eager raises, the rule gives {answer}: {text}"))
        else:
            covered.add(op)
            if answer != ", ".join(expected):
                wrong.append((op, f"{answer} but eager {', '.join(expected)}: {text}"))
    assert not wrong, summary(wrong, len(cases))
    uncovered = sorted({op for op, _, expected in cases if expected is not None} - covered)
    assert not uncovered, f"no case of these ops is covered by its rule: {uncovered}"


@pytest.mark.parametrize("per_op", PER_OP)
@pytest.mark.parametrize("family", FAMILIES)
def test_symbolic_rules_equal_kernels(family, per_op):
    header = "".join(f"sym s{n} in [2, inf] = {n}\n" for n in range(2, 41))
    cases = [c for c in calls_of(family, per_op, symbolic_type_text) if "None" not in c[1] and c[2] is not None]
    wrong = []
    for (op, text, expected), answer in zip(cases, infer([header + c[1] for c in cases]), strict=True):
        if answer.startswith("error:"):
            if "type rule" not in answer and "result types" not in answer:
                wrong.append((op, f"{answer}: {text}"))
        elif evaluated(answer) != evaluated(", ".join(expected)):
            wrong.append((op, f"{answer} but eager {', '.join(expected)}: {text}"))
    assert not wrong, summary(wrong, len(cases))


def test_promotion_is_torchs():
    """All pairs of element types, as stack promotes them."""
    dtypes = [d for d in DTYPES if d is not torch.complex32]
    pairs = [(a, b) for a in dtypes for b in dtypes]
    texts = [f"graph @g(%a: {DTYPES[a]}[2], %b: {DTYPES[b]}[2]) {{\n  %r = aten.stack([%a, %b])\n  return\n}}\n"
             for a, b in pairs]
    for (a, b), answer in zip(pairs, infer(texts), strict=True):
        try:
            expected = f"{DTYPES[torch.promote_types(a, b)]}[2, 2]"
        except RuntimeError:
            expected = "error"
        assert answer == expected or expected == "error" and answer.startswith("error"), (a, b, answer)


def test_schemas_are_torchs():
    """The rows of ops.def hold the schemas of the installed torch."""
    schemas = {(s.name, s.overload_name): str(s) for s in torch._C._jit_get_all_schemas()}
    rows = re.findall(r'^OP\(\w+, "((?:[^"\\]|\\.)*)"', (ROOT / "src/braze/graph/ops.def").read_text(), re.M)
    assert len(rows) > 400
    for row in rows:
        text = row.replace('\\"', '"')
        name, _, overload = text.partition("(")[0].partition(".")
        assert schemas[name, overload] == text
