"""Random tensor programs: pointwise ops, reductions, views and their mixtures over many dtypes and shapes.

A program is a list of lines of Python over values v0, v1, ...; its text is the reproduction. Each line is made from the
values before it, whose shapes and dtypes are known from running it eagerly while it is generated.
"""
import math
import random

import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES = [torch.float32] * 6 + FLOATS + INTEGERS + [torch.bool]

UNARY_FLOAT = ["torch.exp(-{}.abs())", "torch.sin({})", "torch.cos({})", "torch.tanh({})", "torch.sigmoid({})",
               "torch.relu({})", "F.gelu({})", "F.gelu({}, approximate='tanh')", "F.silu({})", "torch.sqrt({}.abs())",
               "torch.log1p({}.abs())", "torch.erf({})", "torch.rsqrt({}.abs() + 1)", "torch.floor({})",
               "torch.round({})", "torch.sign({})", "F.softplus({})", "F.leaky_relu({}, 0.1)", "F.elu({})",
               "F.hardswish({})", "torch.expm1(-{}.abs())", "{}.reciprocal().clamp(-9, 9)", "torch.isnan({})"]
UNARY_ANY = ["-{}", "{}.abs()", "{} * 2", "{} + 1", "{} - 3", "1 - {}", "{} == 0", "{} != 1", "{}.clamp(-2, 2)",
             "{}.float()", "{}.to(torch.bfloat16)", "{}.to(torch.int32)", "{}.bool()", "{}.double()", "{}.clone()"]
BINARY = ["{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.minimum({}, {})", "{} > {}", "{} <= {}",
          "torch.where({} > 0, {}, 2)", "torch.add({}, {}, alpha=2)", "{} == {}"]
BINARY_FLOAT = ["{} / ({}.abs() + 1)", "torch.atan2({}, {})", "torch.hypot({}, {})"]
BINARY_INT = ["{} & {}", "{} | {}", "{} ^ {}", "{} // ({}.abs() + 1)", "{} % ({}.abs() + 1)"]
REDUCE_FLOAT = ["{}.mean({d}, keepdim={k})", "torch.softmax({}, {d})", "torch.log_softmax({}, {d})",
                "{}.var({d}, correction=0)", "torch.logsumexp({}, {d})",
                "F.layer_norm({}, {}.shape[-1:])", "{}.mean()"]
REDUCE = ["{}.sum({d}, keepdim={k})", "{}.amax({d}, keepdim={k})", "{}.amin({d})", "{}.sum()", "{}.argmax({d})",
          "{}.max({d})[0]", "{}.any({d})", "{}.all({d})", "torch.cumsum({}, {d})"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.torch_generator = torch.Generator().manual_seed(seed)
        self.values = []
        self.lines = []

    def tensor(self, shape, dtype):
        if dtype.is_floating_point:
            x = torch.randn(shape, generator=self.torch_generator).to(dtype)
        elif dtype == torch.bool:
            x = torch.randint(0, 2, shape, generator=self.torch_generator).bool()
        else:
            x = torch.randint(0 if dtype == torch.uint8 else -5, 6, shape, generator=self.torch_generator).to(dtype)
        layout = self.random.random()
        if layout < 0.15 and x.dim() >= 2:
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout < 0.25 and x.dim() >= 1:
            x = torch.cat([x, x], -1)[..., ::2] if x.shape[-1] > 1 else x
        return x

    def shape(self):
        sizes = [1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64]
        shape = [self.random.choice(sizes) for _ in range(self.random.choice([0, 1, 2, 2, 3, 3, 4]))]
        while math.prod(shape) > 50_000:
            shape[shape.index(max(shape))] = 3
        return tuple(shape)

    def inputs(self):
        base = self.shape()
        for _ in range(self.random.randint(1, 3)):
            shape = base
            if self.random.random() < 0.4:
                shape = tuple(1 if self.random.random() < 0.3 else s for s in base)[self.random.randint(0, len(base)):]
            self.values.append(self.tensor(shape, self.random.choice(DTYPES)))
        return list(self.values)

    def pick(self, accept=lambda t: True):
        candidates = [i for i, t in enumerate(self.values) if accept(t) and t.numel() <= 200_000]
        return self.random.choice(candidates[-6:]) if candidates else None

    def view(self, i):
        t, r = self.values[i], self.random
        choices = [f"v{i}.unsqueeze({r.randint(0, t.dim())})", f"v{i}.reshape(-1)"]
        if t.dim() >= 1:
            d = r.randrange(t.dim())
            n = t.shape[d]
            start = r.randrange(n)
            choices += [f"v{i}.select({d}, {start})", f"v{i}.narrow({d}, {start}, {r.randint(1, n - start)})",
                        f"v{i}.flip({d})", f"torch.cat([v{i}, v{i}], {d})", f"v{i}.repeat_interleave(2, {d})",
                        f"v{i}.unflatten({d}, (-1, 1))", f"v{i}.roll(1, {d})"]
        if t.dim() >= 2:
            a, b = r.sample(range(t.dim()), 2)
            choices += [f"v{i}.transpose({a}, {b})"] * 2 + [f"v{i}.flatten({min(a, b)}, {max(a, b)})", f"v{i}.triu()"]
        if 1 in t.shape:
            choices.append(f"v{i}.expand({', '.join('2' if s == 1 else str(s) for s in t.shape)})")
        return r.choice(choices)

    def line(self):
        r = self.random
        kind = r.random()
        i = self.pick()
        t = self.values[i]
        floating = t.is_floating_point()
        if kind < 0.30:
            return r.choice(UNARY_FLOAT + UNARY_ANY if floating else UNARY_ANY).format(*[f"v{i}"] * 2)
        if kind < 0.60:
            j = self.pick(lambda u: _broadcasts(t.shape, u.shape))
            pool = list(BINARY)
            u = self.values[j]
            if floating and u.is_floating_point():
                pool += BINARY_FLOAT
            if not floating and not u.is_floating_point():
                pool += BINARY_INT
            return r.choice(pool).format(f"v{i}", f"v{j}")
        if kind < 0.75 and t.dim() >= 1:
            d = r.randrange(t.dim())
            text = r.choice(REDUCE + REDUCE_FLOAT * 2 if floating else REDUCE)
            return text.format(f"v{i}", f"v{i}", d=d, k=r.choice([True, False]))
        return self.view(i)


def _broadcasts(a, b):
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b), strict=False))


def run_lines(lines, n_inputs):
    """The Python function of a program: the last line's value and one from the middle are returned."""
    names = ", ".join(f"v{i}" for i in range(n_inputs))
    body = "\n".join(f"    v{n_inputs + k} = {line}" for k, line in enumerate(lines))
    last = n_inputs + len(lines) - 1
    source = f"def program({names}):\n{body}\n    return v{last}, v{n_inputs + len(lines) // 2}\n"
    scope = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, f"<random program {hash(source) & 0xffff:04x}>", "exec"), scope)
    return scope["program"], source


def generate(seed, length=None):
    """(lines, inputs) of one program that runs eagerly."""
    g = Generator(seed)
    inputs = g.inputs()
    length = length or g.random.randint(2, 12)
    attempts = 0
    while len(g.lines) < length and attempts < 200:
        attempts += 1
        text = g.line()
        scope = {f"v{i}": v for i, v in enumerate(g.values)}
        try:
            value = eval(text, {"torch": torch, "F": torch.nn.functional}, scope)
        except (RuntimeError, IndexError, TypeError):
            continue       # not defined for these dtypes or shapes
        if value.numel() > 100_000 or value.numel() == 0:
            continue
        g.lines.append(text)
        g.values.append(value)
    return g.lines, inputs
