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
