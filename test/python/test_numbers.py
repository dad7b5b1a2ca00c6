"""Python numbers that change between calls: one compilation for all of their values, and Python's own arithmetic."""

import math
import operator

import pytest
import torch
from torch import nn

import braze

X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    yield


def bits(value):
    """Equal only for values of the same types and bits."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), repr(value.tolist())
    if isinstance(value, (tuple, list)):
        return type(value), [bits(item) for item in value]
    return type(value), repr(value)


def check(function, values, graphs, *, close=False, args=(X,), **options):
    compiled = braze.compile(function, **options)
    for value in values:
        expected, given = function(*args, value), compiled(*args, value)
        if close:
            torch.testing.assert_close(given, expected)
        else:
            assert bits(given) == bits(expected), value
    assert braze.counters()["skipped"] == {}
    assert braze.counters()["graphs"] == graphs


FLOATS = [1.5, 2.5, -3.25, 0.125, 9.0, -0.0, 1e30, 1 / 3]
INTS = [5, 7, 1, 0, -3, 100, 2**31, 12345]


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.gt, operator.eq])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_operands(op, dtype):
    x = X.to(dtype)
    check(lambda x, s: (op(x, s), op(s, x)), FLOATS, 2, args=(x,))


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.gt, operator.eq])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32])
def test_int_operands(op, dtype):
    check(lambda x, n: op(x, n), INTS[:6], 2, args=(X.to(dtype),))


def test_zero_dim_operand():
    check(lambda x, s: x[0, 0] * s + torch.tensor(3) * s, FLOATS, 2)


def test_float_arithmetic_is_python_s():
    def f(x, s):
        return x + 1, s * 0.1 + 0.7 - s, -s, 1 / (s * s + 1), s / 3, float(s)

    check(f, FLOATS, 2)


def test_int_arithmetic_is_python_s():
    def f(x, n):
        return x + 1, n * n + 3, n // 7, n % 7, -n, n / 3, 2 * n - 1, n * 0.1, float(n), int(n)

    check(f, INTS, 2)


def test_powers():
    check(lambda x, n: (x * (1 - 0.9**n), 0.9**n, n**2), [1, 2, 3, 10, 50], 2, close=True)


def test_large_ints_are_exact():
    def f(x, n):
        return x + 1, n * n * n

    compiled = braze.compile(f)
    for n in (3, 5, 2**21, 2**30, 2**40, 2**70):
        assert compiled(X, n)[1] == n**3


def test_numbers_beyond_float32():
    check(lambda x, s: x * s, [1.0, 2.0, math.inf, 3.0, 1e300, 4.0], 4)


def test_branches_guard_the_predicate():
    def f(x, s):
        if s > 2.0:
            return x * s
        return x - s

    check(f, [1.0, 1.5, 3.0, 4.0, 0.5, 7.0], 3)


def test_remainder_guards_the_predicate():
    def f(x, n):
        return x * 2 if n % 3 == 0 else x + n

    check(f, list(range(1, 20)), 3)


def test_division_by_zero_raises():
    compiled = braze.compile(lambda x, n: x * (1 / n))
    for n in (1, 2, 3):
        torch.testing.assert_close(compiled(X, n), X * (1 / n))
    with pytest.raises(ZeroDivisionError):
        compiled(X, 0)
    torch.testing.assert_close(compiled(X, 4), X * 0.25)


def test_types_are_guarded():
    compiled = braze.compile(lambda x, s: x * s)
    ints = X.to(torch.int64)
    for s in (2, 3, 4, 2.0, 3.5, True, 5, 7.5):
        assert compiled(ints, s).dtype == (ints * s).dtype


def test_module_counter():
    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 0
            self.rate = 0.5

        def forward(self, x):
            self.steps += 1
            self.rate *= 0.9
            return x * self.rate + self.steps

    eager, traced = Step(), Step()
    compiled = braze.compile(traced)
    for _ in range(30):
        torch.testing.assert_close(compiled(X), eager(X))
        assert (traced.steps, traced.rate) == (eager.steps, eager.rate)
        assert type(traced.steps) is int and type(traced.rate) is float
    assert braze.counters()["graphs"] <= 3


def test_numbers_in_containers():
    def f(x, s):
        state = {"scale": s, "list": [s, 2]}
        return x * state["scale"], state, (s, s + 1)

    check(lambda x, s: [*f(x, s)], [1.5, 2.5, 3.5, 4.5], 2)


def test_sizes():
    check(lambda x, n: torch.ones(n, 4) * n, [3, 5, 8, 13, 2], 2)
    compiled = braze.compile(lambda x, n: (x.repeat(4, 1)[:n].sum(0), x.repeat(4, 1)[n]))
    for n in (3, 5, 7, -2, 1, 0, 11):
        for given, expected in zip(compiled(X, n), (X.repeat(4, 1)[:n].sum(0), X.repeat(4, 1)[n])):
            torch.testing.assert_close(given, expected)
    with pytest.raises(IndexError):
        compiled(X, 12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: torch.add(x, x + 1, alpha=s),
        lambda x, s: torch.addcmul(x, x, x + 1, value=s),
        lambda x, s: torch.addcdiv(x, x, x.abs() + 1, value=s),
        lambda x, s: torch.lerp(x, x + 1, s),
        lambda x, s: x.masked_fill(x > 0, s),
        lambda x, s: torch.full((2, 3), s),
        lambda x, s: torch.full_like(x, s),
        lambda x, s: (x.abs() + 1) ** s,
        lambda x, s: x.clone().mul_(s).add_(x, alpha=-s),
        lambda x, s: torch.where(x > s, x, s),
        lambda x, s: x.clone().fill_(s),
    ],
)
def test_scalars_of_operators(function):
    check(function, [0.5, 1.5, 0.25, 0.75, 2.0], 2, close=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends(backend):
    check(lambda x, s: x.to(torch.bfloat16) * s + torch.tensor(3) * s, [1.5, 2.5, 3.5], 2, backend=backend)
    check(lambda x, n: x * n + torch.zeros(n).sum(), [3, 4, 5, 6], 4, backend=backend)


def test_gradients():
    def f(x, s, n):
        return ((x * s).sin() * n / s).sum() + (x**2 * (n + s)).sum()

    compiled = braze.compile(f)
    for s, n in [(0.5, 1), (1.5, 2), (2.5, 3), (3.5, 7)]:
        x, y = (X.clone().requires_grad_() for _ in range(2))
        (expected,) = torch.autograd.grad(f(x, s, n), x, create_graph=True)
        (given,) = torch.autograd.grad(compiled(y, s, n), y, create_graph=True)
        torch.testing.assert_close(given, expected)
        torch.testing.assert_close(torch.autograd.grad(given.sum(), y), torch.autograd.grad(expected.sum(), x))
    assert braze.counters()["graphs"] <= 3


def test_static_on_request():
    check(lambda x, s: x * s, [1.5, 2.5, 3.5, 1.5], 3, dynamic=False)


def test_graph_breaks():
    def f(x, n):
        y = x * n
        torch._dynamo.graph_break()
        return y + n, n + 1

    compiled = braze.compile(f)
    for n in (1, 2, 3, 4, 5, 6):
        given = compiled(X, n)
        torch.testing.assert_close(given[0], X * n + n)
        assert bits(given[1]) == bits(n + 1)
    assert braze.counters()["graphs"] <= 4


def test_items_of_inputs_are_numbers():
    def f(x, t):
        s = t.item()
        return x * s + s, s, s * 2 - 1, 1 / (s + 10), 0.9**s, float(t)

    compiled = braze.compile(f, fullgraph=True)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for value in (0.5, -3.25, 1e-3, 7.0):
            t = torch.tensor(value, dtype=dtype)
            assert bits(compiled(X, t)) == bits(f(X, t))
    assert braze.counters()["graphs"] == 3


def test_items_are_read_as_they_are_at_the_call():
    t = torch.tensor(1.5)
    compiled = braze.compile(lambda x: (x * t.item(), t.item()), fullgraph=True)
    for value in (1.5, 2.0, -1.0):
        t.fill_(value)
        assert bits(compiled(X)) == bits((X * value, value))


def test_items_of_what_the_call_writes():
    def f(x, t):
        before = t.item()
        t += 1
        after = t.item()
        t *= 0.1
        return x * after, before, after, t.item()

    compiled, a, b = braze.compile(f, fullgraph=True), torch.tensor(0.1), torch.tensor(0.1)
    for _ in range(4):
        assert bits(compiled(X, a)) == bits(f(X, b))
    assert a.item() == b.item()
    assert braze.counters()["graphs"] == 1


def test_items_through_other_views_of_the_memory():
    def f(x, memory, element):
        memory.mul_(2)
        return x * element.item(), element.item()

    compiled = braze.compile(f)
    for _ in range(3):
        results = []
        for g in (f, compiled):
            memory = torch.arange(4.0)
            results.append(g(X, memory, memory[2]))
        assert bits(results[1]) == bits(results[0])


def test_branches_on_items_of_inputs_guard_the_predicate():
    def f(x, t):
        return x * t.item() if t.item() > 2 else x - t.item()

    compiled = braze.compile(f, fullgraph=True)
    for value in (1.0, 1.5, 3.0, 4.0, 0.5, 7.0):
        t = torch.tensor(value)
        torch.testing.assert_close(compiled(X, t), f(X, t))
    assert braze.counters()["graphs"] == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_items_of_computed_values(dtype):
    def f(x):
        s = x.abs().amax().item()
        scaled = x * s + (s - 1)
        other = x.int() * s
        return scaled, other, x[0, 0] * s, s, s * 2 + 1, -s / 4, [s], {"s": s}

    x = X.to(dtype)
    check(lambda x, _: f(x), [1, 1], 1, args=(x,), fullgraph=True)


def test_totals_of_items():
    class Meter:
        total = 0.0

    def f(x, meter):
        loss = x.square().mean()
        meter.total += loss.item()
        return loss * 2

    a, b = Meter(), Meter()
    compiled = braze.compile(f, fullgraph=True)
    for i in range(5):
        torch.testing.assert_close(compiled(X + i, a), f(X + i, b))
    assert a.total == pytest.approx(b.total) and type(a.total) is float
    assert braze.counters()["graphs"] <= 3


def test_items_with_gradients():
    def f(x, w):
        loss = (x * w).square().sum()
        return loss * loss.item(), loss.item()

    w = torch.ones(4, requires_grad=True)
    results = []
    for g in (f, braze.compile(f, fullgraph=True)):
        out, value = g(X, w)
        gradient, = torch.autograd.grad(out, w)
        results.append((out.detach(), gradient))
        assert value == out.item() ** 0.5 or abs(value - out.item() ** 0.5) < 1e-3
    torch.testing.assert_close(results[1], results[0])


def test_questions_about_computed_items_break_the_graph():
    def f(x):
        s = x.sum().item()
        if s > 0:
            return x * s
        return x - s

    compiled = braze.compile(f)
    for x in (X + 1, X - 1, X + 2):
        torch.testing.assert_close(compiled(x), f(x))
    assert not braze.counters()["skipped"]
    with pytest.raises(braze.Unsupported, match="value of a tensor"):
        braze.compile(f, fullgraph=True)(X)


def test_items_in_text():
    def f(x):
        return x + 1, f"{x.amax().item():.3f} of {x.amin().item()}"

    assert bits(braze.compile(f)(X)) == bits(f(X))


def test_division_by_an_item():
    def f(x, t):
        return x + 1 / t.item()

    compiled = braze.compile(f)
    for value in (1.0, 2.0):
        torch.testing.assert_close(compiled(X, torch.tensor(value)), X + 1 / value)
    with pytest.raises(ZeroDivisionError):
        compiled(X, torch.tensor(0.0))
    computed = braze.compile(lambda x: x + 1 / (x - x).sum().item())
    with pytest.raises(ZeroDivisionError):
        computed(X)


def test_scalars_in_a_tensor():
    def f(xs, scalars):
        return torch._foreach_addcdiv(xs, xs, xs, scalars), torch._foreach_addcmul(xs, xs, xs, scalars)

    xs = [X + 1, X[0] + 1]
    compiled = braze.compile(f, fullgraph=True)
    for values in ([1.5, 2.0], [-1.0, 0.5]):
        scalars = torch.tensor(values)
        for e, g in zip(f(xs, scalars), compiled(xs, scalars), strict=True):
            torch.testing.assert_close(g, e)
    assert braze.counters()["graphs"] == 1


def test_math_of_changing_numbers():
    def f(x, s):
        return x * math.sqrt(s), math.exp(-s), math.log(s), math.sin(s), math.cos(math.pi * s / 3)

    check(f, [1.5, 2.5, 3.25, 0.125, 9.0], 2)
    compiled = braze.compile(lambda x, n: (x, math.cos(math.pi * n / 10)))
    for n in range(1, 9):
        assert compiled(X, n)[1] == math.cos(math.pi * n / 10)
    root = braze.compile(lambda x, s: x * math.sqrt(s))
    for s in (1.0, 2.0, 3.0):
        root(X, s)
    with pytest.raises(ValueError, match="math domain error|expected a nonnegative input"):
        root(X, -1.0)


def test_tensors_of_changing_numbers():
    def f(x, s):
        return x + torch.tensor(s), torch.tensor([s, 1, s * 2]), torch.as_tensor(s / 3), torch.tensor(s, dtype=torch.float64)

    check(f, [1.5, 2.5, -3.25, 0.125], 2)
    check(lambda x, n: (x, torch.tensor(n), torch.tensor([n, 2])), [3, 4, 5, 6], 4)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_branches_on_tensors_of_the_caller(dtype):
    def f(x, n):
        if n == 0:
            x = x + 1
        if not n > 2:
            x = x * 2
        n += 1
        if n >= 4 and n != 6:
            x = x - 3
        if n:
            x = x / 5
        return x

    compiled, a, b = braze.compile(f, fullgraph=True), torch.tensor(-1, dtype=dtype), torch.tensor(-1, dtype=dtype)
    for _ in range(10):
        torch.testing.assert_close(compiled(X, a), f(X, b))
    assert braze.counters()["graphs"] <= 7


def test_branches_on_flags():
    compiled = braze.compile(lambda x, flag: x * 2 if flag else x - 1, fullgraph=True)
    for value in (True, False, True):
        torch.testing.assert_close(compiled(X, torch.tensor(value)), X * 2 if value else X - 1)
    large = braze.compile(lambda x, n: x * 2 if n == 2**60 + 1 else x)
    for n in (2**60, 2**60 + 1, 3):
        torch.testing.assert_close(large(X, torch.tensor(n)), X * 2 if n == 2**60 + 1 else X)


@pytest.mark.parametrize("f", [
    lambda x, n: torch.eye(n).sum() * x,
    lambda x, n: torch.zeros(n, n, n).sum() + x,
    lambda x, n: x.int() << n,
    lambda x, n: x.int() >> n,
])
def test_ints_that_size_or_shift_are_not_specialized(f):
    compiled = braze.compile(f)
    before = braze.compile_count()
    for n in range(2, 12):
        x = torch.arange(4.0) * 100
        torch.testing.assert_close(compiled(x, n), f(x, n))
    assert braze.compile_count() - before <= 2


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.float32])
def test_shifts_are_eagers(dtype):
    x = torch.tensor([1, -5, 100, 127]).to(dtype)
    for by in (0, 1, 7, 8, 31, 63, 64, -1, True, 2.0, torch.tensor([1, 2, 40, -3]), torch.tensor([1, 2, 3, 4], dtype=torch.int8)):
        for f in (lambda x, by: x << by, lambda x, by: x >> by):
            outcomes = []
            for g in (f, braze.compile(f)):
                try:
                    out = g(x, by)
                    outcomes.append((out.dtype, out.tolist()))
                except RuntimeError as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1]
