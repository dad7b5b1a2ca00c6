"""Branches on tensors of which one side raises: part of the graph, with eager's error where the tensor is not as expected."""
import warnings

import braze
import pytest
import torch
from asserting_programs import asserts, asserts_silently


def outcome(f, *args):
    """Result or error, and the random number that follows."""
    torch.manual_seed(0)
    try:
        result = ("ok", f(*args))
    except Exception as error:
        result = (type(error), str(error))
    return *result, torch.rand(()).item()


def same(f, compiled, *args):
    kind, value, random = outcome(compiled, *args)
    expected = outcome(f, *args)
    assert (kind, random) == (expected[0], expected[2])
    if kind == "ok":
        torch.testing.assert_close(value, expected[1], equal_nan=True)
    else:
        assert value == expected[1]


def raises(x):
    bad = torch.isnan(x)
    if bad.any():
        raise ValueError("nan at " + str(bad.nonzero().tolist()))
    return x + 1


def raises_below(x):
    if not (x < 5).all():
        message = f"{x.max().item()} is too much"
        raise IndexError(message)
    return x * torch.rand(3)


def numbers(x):
    if x.sum():
        raise RuntimeError("no sum but zero")
    return x


GOOD, SMALL, NAN, LARGE = torch.tensor([1., -2, 1]), torch.tensor([1., -200, 3]), torch.tensor([1., float("nan"), 3]), torch.full((3,), 9.0)


@pytest.mark.parametrize("backend", ["braze", "eager"])
@pytest.mark.parametrize("f", [asserts, asserts_silently, raises, raises_below, numbers])
def test_errors_are_eagers_and_the_next_call_is_compiled(f, backend):
    compiled = braze.compile(f, fullgraph=True, backend=backend)
    for x in (GOOD, SMALL, GOOD, NAN, LARGE, torch.tensor([1., -1, 0]), GOOD):
        same(f, compiled, x)


def test_effects_before_the_branch_happen_once():
    def make():
        log = []
        def f(x):
            log.append(len(log))
            x.add_(1)
            if not (x < 10).all():
                raise ValueError("large")
            return x * 2
        return f, log

    (f, log), (g, own) = make(), make()
    compiled = braze.compile(g, fullgraph=True)
    for start in (0.0, 20.0, 1.0):
        x, y = torch.full((3,), start), torch.full((3,), start)
        a, b = outcome(f, x), outcome(compiled, y)
        assert a[0] == b[0] and log == own
        torch.testing.assert_close(x, y)


def test_an_error_that_the_program_catches_itself():
    def f(x):
        try:
            if (x > 3).any():
                raise StopIteration
        except StopIteration:
            return x - 1
        return x + 1

    compiled = braze.compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(10):
            same(f, compiled, torch.full((3,), 5.0 * (i % 2)))


def test_behind_a_graph_break_and_in_a_callee():
    def check(y):
        if (y > 100).any():
            raise OverflowError("large")
        return y.sqrt()

    def f(x, scale):
        y = x * x
        print(end="", flush=bool(y.sum() > 1e9))
        try:
            return check(y * scale)
        except OverflowError:
            return y

    compiled = braze.compile(f)
    for x, scale in ((GOOD, 1.0), (GOOD, 1e4), (GOOD, 1.0), (GOOD, 1e4), (GOOD, 1e4), (GOOD, 1e4), (GOOD, 1.0)):
        same(f, compiled, x, scale)


def test_gradients():
    def f(x, w):
        y = (x * w).sum()
        if y.isnan():
            raise ValueError("nan")
        return y * w

    w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    compiled = braze.compile(f, fullgraph=True)
    compiled(GOOD, w).sum().backward()
    f(GOOD, v).sum().backward()
    torch.testing.assert_close(w.grad, v.grad)
    with pytest.raises(ValueError, match="nan"):
        compiled(NAN, w)


@pytest.mark.parametrize("make", [
    lambda x: torch.distributions.Normal(x, 1.0).log_prob(x + 1),
    lambda x: torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), torch.ones(3)), 1).log_prob(x),
    lambda x: torch.distributions.Categorical(logits=x).entropy(),
    lambda x: torch.distributions.kl_divergence(torch.distributions.Normal(x, 1.0), torch.distributions.Normal(0.0, 2.0)),
])
def test_distributions_check_their_arguments(make, monkeypatch):
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)   # torch.compile turns it off for all
    compiled = braze.compile(make)
    for x in (GOOD, NAN, GOOD):
        same(make, compiled, x)
