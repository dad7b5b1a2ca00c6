"""Tensor IR text from and to Python: prints the graph of one ATen call, and runs a printed graph with ATen."""

import functools
import os
import pathlib
import re
import subprocess

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BRAZE_BUILD", ROOT / "build" / "release"))
BRAZE_OPT = BUILD / "tools" / "braze-opt" / "braze-opt"

DTYPES = {
    torch.bool: "b8",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
BY_TEXT = {text: dtype for dtype, text in DTYPES.items()}
FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}


def optimize(text, *options):
    """The graph after the steps that `options` of braze-opt name; its complaints are errors."""
    result = subprocess.run([BRAZE_OPT, *options], input=text, capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stderr + "\n" + text
    return result.stdout


def results_of(value):
    """The tensors that a call returns, in order; None for an undefined one."""
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in results_of(item)]
    return [value] if value is None or isinstance(value, torch.Tensor) else []


def type_text(tensor):
    if tensor is None:
        return "undef"
    sizes = ", ".join(map(str, tensor.shape))
    text = f"{DTYPES[tensor.dtype]}[{sizes}]"
    if tensor.stride() != contiguous_strides(tensor.shape):
        text += "{" + ", ".join(map(str, tensor.stride())) + "}"
    if tensor.storage_offset():
        text += f" offset {tensor.storage_offset()}"
    return text


def contiguous_strides(sizes):
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride *= max(size, 1)
    return tuple(strides)


def argument_text(value, names):
    if isinstance(value, torch.Tensor):
        return names[id(value)]
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(argument_text(item, names) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, torch.dtype):
        return DTYPES[value]
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, torch.device):
        return f"@{value}"
    if isinstance(value, torch.layout):
        return "layout(0)"
    for text, memory_format in FORMATS.items():
        if value is memory_format:
            return text
    return repr(value)


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


class Recorder(TorchDispatchMode):
    """Records the calls that run under it, each with the types that eager gives."""

    def __init__(self, inputs):
        super().__init__()
        self.inputs, self.names, self.lines, self.declared, self.kept, self.count = inputs, {}, [], {}, list(inputs), 0
        for i, tensor in enumerate(inputs):
            self.names[id(tensor)] = f"%x{i}"

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        assert not op._schema.is_mutable, op
        result = op(*args, **(kwargs or {}))
        self.add(op, args, kwargs or {}, result)
        return result

    def add(self, op, args, kwargs, result):
        results = results_of(result)
        self.kept += results  # ids must stay taken
        heads = []
        for tensor in results:
            self.count += 1
            heads.append(f"%{self.count}")
            if tensor is not None:
                self.names[id(tensor)] = heads[-1]
        name = str(op).removesuffix(".default")
        if not known(op):
            self.declared[name] = f"op {op._schema}\n"
        words = [argument_text(a, self.names) for a in args]
        words += [f"{k}={argument_text(v, self.names)}" for k, v in kwargs.items()]
        self.lines.append(f"  {', '.join(heads)} = {name}({', '.join(words)}) : {', '.join(map(type_text, results))}\n")

    def text(self, outputs):
        parameters = ", ".join(f"{self.names[id(t)]}: {type_text(t)}" for t in self.inputs)
        returned = ", ".join(self.names[id(t)] for t in outputs)
        return (
            f"{''.join(self.declared.values())}graph @recorded({parameters}) {{\n{''.join(self.lines)}"
            f"  return {returned}\n}}\n"
        )


def record(function, inputs):
    """(text, results) of a function of tensors that calls functional ops only."""
    recorder = Recorder(inputs)
    with torch.no_grad(), recorder:
        results = list(tensors_in(function(*inputs)))
    return recorder.text(results), results


def graph_of_call(op, args, kwargs):
    """(text, inputs, results) of the graph that makes this one call."""
    inputs = []
    for tensor in tensors_in([*args, *kwargs.values()]):
        if not any(tensor is other for other in inputs):
            inputs.append(tensor)
    recorder = Recorder(inputs)
    result = op(*args, **kwargs)
    recorder.add(op, args, kwargs, result)
    results = list(tensors_in(result))
    return recorder.text(results), inputs, results


def known(op):
    return str(op._schema).split("(")[0].split("::")[1] in known_names()


@functools.cache
def known_names():
    text = (ROOT / "src/braze/graph/ops.def").read_text()
    return set(re.findall(r'"aten::([\w.]+)\(', text))


class Reader:
    """Reads the arguments of a printed call."""

    TOKEN = re.compile(
        r'\s*(%[\w.$]+|"(?:[^"\\]|\\.)*"|@[\w:]+|layout\(\d+\)|[A-Za-z_]\w*|-?[\d.]+(?:e[-+]?\d+)?|-inf|[\[\](),=])'
    )

    def __init__(self, text, values):
        self.tokens, self.values, self.at = self.TOKEN.findall(text), values, 0

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def arguments(self):
        args, kwargs = [], {}
        while self.at < len(self.tokens):
            if self.peek() == ",":
                self.next()
            elif self.peek(1) == "=":
                name = self.next()
                self.next()
                kwargs[name] = self.value()
            else:
                args.append(self.value())
        return args, kwargs

    def value(self):
        token = self.next()
        if token == "[":
            items = []
            while self.peek() != "]":
                items.append(self.value())
                if self.peek() == ",":
                    self.next()
            self.next()
            return items
        if token.startswith("%"):
            return self.values[token]
        if token.startswith('"'):
            return token[1:-1].replace('\\"', '"')
        if token.startswith("@"):
            return torch.device(token[1:])
        if token.startswith("layout"):
            return torch.strided
        if token in FORMATS:
            return FORMATS[token]
        if token in BY_TEXT:
            return BY_TEXT[token]
        words = {"none": None, "undef": None, "true": True, "false": False}
        if token in words:
            return words[token]
        return float(token) if re.search(r"[.en]", token) else int(token)


def check_type(text, tensor, line):
    assert text == type_text(tensor), f"{line}\n  the kernel gives {type_text(tensor)}"


def split_types(text):
    return [part.strip() for part in re.findall(r"undef|\w+\[[^\]]*\](?:\{[^}]*\})?(?: offset \d+)?", text)]


def run_graph(text, inputs):
    """The outputs of a printed graph of static shapes; each node's type is checked against what ATen gives."""
    values, outputs = {}, []
    for line in text.splitlines():
        if line.startswith("graph"):
            names = re.findall(r"(%[\w.$]+):", line)
            values.update(zip(names, inputs, strict=True))
        elif line.strip().startswith("return"):
            outputs = [values.get(name) for name in re.findall(r"%[\w.$]+|undef", line.split(" mutates")[0])]
        elif m := re.match(r"\s+(?:([%\w.$, ]+) = )?([\w.]+)\((.*)\)(?: : (.*))?$", line):
            heads, name, arguments, types = m.groups()
            args, kwargs = Reader(arguments, values).arguments()
            packet = torch.ops
            parts = name.split(".")
            for part in parts[:2]:
                packet = getattr(packet, part)
            op = getattr(packet, parts[2] if len(parts) > 2 else "default")
            results = op(*args, **kwargs)
            results = results_of(results)
            for head, type_, result in zip(heads.split(", "), split_types(types), results, strict=True):
                if type_ != "undef":
                    check_type(type_, result, line.strip())
                values[head] = result
    return outputs
