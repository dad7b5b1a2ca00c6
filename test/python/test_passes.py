"""Graph passes keep every bit: recorded functions, run before and after the passes by ATen, give equal outputs."""

import random
import re

import pytest
import tensor_ir
import torch

pytestmark = pytest.mark.skipif(not tensor_ir.BRAZE_OPT.exists(), reason="braze-opt is not built")
aten = torch.ops.aten
EVERYTHING = ["--passes=before,decompose,after", "--verify"]


def same_bits(a, b):
    assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
    view = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    equal = (a.view(view) == b.view(view)) if a.dim() else torch.equal(a, b) | (a.isnan() & b.isnan())
    return bool(
        (torch.as_tensor(equal) | (a.isnan() & b.isnan() if a.is_floating_point() else torch.tensor(False))).all()
    )


def check(function, inputs, *options, exact=True):
    text, expected = tensor_ir.record(function, inputs)
    out = tensor_ir.optimize(text, *options)
    for a, e in zip(tensor_ir.run_graph(out, inputs), expected, strict=True):
        if exact:
            assert same_bits(a, e), f"{text}\n{out}"
        else:
            torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5, msg=lambda m: f"{m}\n{text}{out}")
    return out


ZEROS = [0.0, -0.0, 1.0, -1.0, 3.5, float("inf"), float("-inf"), float("nan"), 1e-40, 2.0**100]
NEUTRAL = [
    lambda x: x + 0.0,
    lambda x: x + -0.0,
    lambda x: x - 0.0,
    lambda x: x - (-0.0),
    lambda x: x * 1.0,
    lambda x: x * -1.0,
    lambda x: x / 1.0,
    lambda x: x / 8.0,
    lambda x: x / 3.0,
    lambda x: x / 2.0**-20,
    lambda x: x**2,
    lambda x: x**3,
    lambda x: x**0.5,
    lambda x: x**1,
    lambda x: torch.sub(x, 0, alpha=-1),
    lambda x: 0 + x,
    lambda x: -0.0 + x,
    lambda x: x.neg().neg(),
    lambda x: x.relu().relu(),
    lambda x: x.abs().abs(),
    lambda x: x.floor().floor(),
    lambda x: x.to(torch.float64).to(x.dtype),
    lambda x: x.to(torch.bfloat16).to(x.dtype),
    lambda x: torch.where(x > 0, x, x),
    lambda x: x.clone(),
    lambda x: x * torch.full((), 1.0),
    lambda x: x.to(x.dtype, copy=True),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("number", range(len(NEUTRAL)))
def test_arithmetic_keeps_bits(number, dtype):
    x = torch.tensor(ZEROS).to(dtype)
    check(lambda x: (NEUTRAL[number](x) * 2, NEUTRAL[number](x)), [x], *EVERYTHING)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integer_arithmetic_keeps_bits(dtype):
    x = torch.tensor([0, 1, 2, 127, 200, -1]).to(dtype)
    functions = [
        lambda x: x + 0,
        lambda x: x * 1,
        lambda x: x / 1,
        lambda x: x // 1,
        lambda x: (x + 3) + 4,
        lambda x: x + True,
        lambda x: x.to(torch.int64).to(dtype),
        lambda x: x.to(torch.float32).to(dtype),
        lambda x: x.to(torch.bool).to(dtype),
    ]
    for f in functions:
        check(lambda x, f=f: (f(x), f(x) + 1), [x], *EVERYTHING)


def additive(mask):
    return torch.where(mask, torch.scalar_tensor(0.0), torch.scalar_tensor(float("-inf")))


def causal_by_positions(q, batch):
    """The mask as transformers build it: positions, packed sequences told apart by jumps in them, indexed by vmap."""
    n = q.shape[2]
    positions = (torch.arange(n) + 0).unsqueeze(0)
    jumps = torch.cat([positions[:, :1] - 1, positions], 1)
    jumps = (jumps[:, 1:] - jumps[:, :-1]) != 1
    sequence = jumps.cumsum(-1).expand(batch, -1)
    positions = positions.expand(batch, -1)
    b = torch.arange(batch)[:, None, None, None]
    rows, columns = torch.arange(n)[None, None, :, None], torch.arange(n)[None, None, None, :]
    earlier = positions[b, columns] <= positions[b, rows]
    together = sequence[b, rows] == sequence[b, columns]
    return ((torch.ones((), dtype=torch.bool) & earlier) & together).expand(batch, 1, n, n)


@pytest.mark.parametrize("batch", [1, 3])
def test_causal_masks_are_recognized(batch):
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, 2, 70, 16) for _ in range(3))

    def attention(q, k, v):
        return aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, attn_mask=additive(causal_by_positions(q, batch))
        )[0]

    out = check(attention, [q, k, v], *EVERYTHING, exact=False)
    assert "is_causal=true" in out and "attn_mask" not in out and out.count("\n") == 4


def test_masks_that_are_not_causal_stay():
    q = torch.randn(1, 2, 6, 16)
    n = q.shape[2]
    for mask in (lambda i, j: j < i + 2, lambda i, j: j >= i, lambda i, j: (j != 3).expand(n, n)):

        def attention(q, mask=mask):
            allowed = mask(torch.arange(n)[:, None], torch.arange(n)[None, :])[None, None]
            return aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, attn_mask=additive(allowed))[0]

        out = check(attention, [q], *EVERYTHING, exact=False)
        assert "attn_mask" in out


def attention_by_hand(q, k, v, mask, scale, divide):
    scores = q @ k.transpose(-1, -2)
    scores = scores / scale if divide else scores * scale
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("shape", [(2, 3, 10, 16), (6, 10, 16)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("masked", [None, "rows", "full"])
def test_attention_pattern(shape, transposed, masked):
    torch.manual_seed(0)

    def make(length):
        if transposed and len(shape) == 4:
            return torch.randn(shape[0], length, shape[1], shape[3]).transpose(1, 2)
        return torch.randn(*shape[:-2], length, shape[-1])

    q, k, v = make(10), make(7), make(7)
    mask = {None: None, "rows": torch.randn(7), "full": torch.randn(*shape[:-2], 10, 7)}[masked]
    inputs = [q, k, v] + ([mask] if masked else [])
    for divide in (False, True):
        out = check(
            lambda q, k, v, m=None, divide=divide: attention_by_hand(q, k, v, m, 4.0, divide),
            inputs,
            "--passes=before",
            "--verify",
            exact=False,
        )
        assert "flash_attention" in out and "bmm" not in out


def test_attention_pattern_leaves_what_is_used():
    q = torch.randn(2, 3, 10, 16)

    def f(q):
        p = torch.softmax(q @ q.transpose(-1, -2), -1)
        return p @ q, p

    out = check(f, [q], "--passes=before", "--verify", exact=False)
    assert "flash_attention" not in out or "_softmax" in out


def test_outputs_stay_separate():
    x = torch.randn(3, 4)
    text, _ = tensor_ir.record(lambda x: (x.clone(), x + 1, x + 1, (x + 1).clone(), x * 1.0, (x + 1).clone().t()), [x])
    out = tensor_ir.optimize(text, *EVERYTHING)
    results = tensor_ir.run_graph(out, [x])
    storages = [t.untyped_storage().data_ptr() for t in [x, *results]]
    assert len(set(storages)) == len(storages), out


class Chain:
    """A random program of views, copies, arithmetic and writes on small tensors; the seed decides."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def step(self, x):
        r, n = self.random, x.dim()
        d = r.randrange(n) if n else 0
        size = x.shape[d] if n else 1
        choice = r.randrange(24)
        if choice == 0:
            return x + r.choice([0.0, -0.0, 1.5]) if x.is_floating_point() else x + r.choice([0, 1])
        if choice == 1:
            return x * r.choice([1, 2])
        if choice == 2:
            return x.clone()
        if choice == 3:
            return x.transpose(d, r.randrange(n)) if n else x
        if choice == 4:
            return x.permute(r.sample(range(n), n))
        if choice == 5:
            return x.reshape(-1)
        if choice == 6:
            return x.unsqueeze(r.randrange(n + 1))
        if choice == 7:
            return x.squeeze()
        if choice == 8 and n:
            return aten.slice(x, d, *sorted((r.randint(0, size), r.randint(0, size))))
        if choice == 9 and n and size:
            return x.select(d, r.randrange(size))
        if choice == 10:
            return x.expand([r.choice([2, 1])] + list(x.shape)) if n < 4 else x
        if choice == 11:
            return x.to(r.choice([torch.float32, torch.float64, torch.int64, torch.bfloat16]))
        if choice == 12:
            return -x
        if choice == 13 and n:
            start, end = sorted((r.randint(0, size), r.randint(0, size)))
            part = aten.slice(x, d, start, end)
            return aten.slice_scatter(x, r.choice([part, part * 2, part.clone()]), d, start, end)
        if choice == 14 and n and size:
            i = r.randrange(size)
            return aten.select_scatter(x, r.choice([x.select(d, i), x.select(d, r.randrange(size)) * 2]), d, i)
        if choice == 15:
            return aten.copy(x, r.choice([x * 3, torch.ones(()), torch.ones((), dtype=torch.int64)]))
        if choice == 16:
            return torch.where(torch.ones(x.shape, dtype=torch.bool), x, x * 2)
        if choice == 17:
            return torch.where(torch.arange(x.shape[-1] if n else 1) >= r.choice([0, 1]), x, x * 0 + 7)
        if choice == 18:
            return x.relu()
        if choice == 19 and x.is_floating_point():
            return x / r.choice([1, 2, 3, 0.25])
        if choice == 20 and n and x.numel() < 200:
            return torch.cat([x, x], d)
        if choice == 21:
            return x.abs()
        if choice == 22 and n:
            return x.sum(d)
        return x.view(list(x.shape)) if x.is_contiguous() else x

    def __call__(self, x):
        values = [x]
        for _ in range(self.random.randint(3, 25)):
            old = self.random.choice(values[-4:])
            new = self.step(old)
            if new.numel() <= 4000 and all(new is not value for value in values):
                values.append(new)
        outputs = self.random.sample(values[1:], min(len(values) - 1, self.random.randint(1, 4)))
        return outputs


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_random_programs_keep_bits(first):
    for seed in range(first, first + 50):
        torch.manual_seed(seed)
        x = torch.randn(2, 3, 4).round(decimals=1) * torch.tensor([1.0, -0.0, 1.0, 0.0])
        text, expected = tensor_ir.record(Chain(seed), [x])
        if not expected:
            continue
        out = tensor_ir.optimize(text, *EVERYTHING)
        for a, e in zip(tensor_ir.run_graph(out, [x]), expected, strict=True):
            assert same_bits(a, e), f"seed {seed}\n{text}\n{out}"


def test_every_pass_has_a_lit_test():
    passes = re.findall(r"^PASS\((\w+)", (tensor_ir.ROOT / "src/braze/rewrite/passes.def").read_text(), re.M)
    tests = {path.stem for path in (tensor_ir.ROOT / "test/lit/rewrite").glob("*.bz")}
    assert set(passes) == tests
