"""Backward passes that are differentiated: compiled when they first come, with the results of eager."""
import threading

import braze
import pytest
import torch
import torch.nn.functional as F


def programs():
    return len(braze.compile_report())


def penalty(f, *inputs, wrt=None):
    """The gradient of a function of f's gradients, with respect to all inputs."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = f(*inputs)
    first = torch.autograd.grad(out.pow(2).sum(), inputs if wrt is None else [inputs[i] for i in wrt], create_graph=True)
    second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), inputs, allow_unused=True)
    return [*first, *second]


def check(f, *inputs, wrt=None, tolerance=1e-4):
    compiled = braze.compile(f)
    for _ in range(2):
        for got, expected in zip(penalty(compiled, *inputs, wrt=wrt), penalty(f, *inputs, wrt=wrt), strict=True):
            torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    return compiled


def test_it_is_compiled_once_for_each_kind_of_inputs():
    f = lambda x, w: torch.tanh(x @ w).sum(1)
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    compiled = check(f, x, w)
    before = programs()
    penalty(compiled, x, w)
    assert programs() == before
    out = compiled(x, w.clone().requires_grad_())      # another program, whose input needs no gradient
    assert out.requires_grad


def test_only_some_gradients_are_asked_for():
    check(lambda x, w, b: F.gelu(x @ w + b).sum(1), torch.randn(4, 8), torch.randn(8, 3), torch.randn(3), wrt=[1])


def test_the_tangent_is_an_input():
    def run(f):
        x = torch.linspace(-1, 1, 12, requires_grad=True)
        g, = torch.autograd.grad(f(x), x, x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    f = lambda x: torch.sin(x) * x
    torch.testing.assert_close(run(braze.compile(f)), run(f))


def test_third_derivatives():
    def run(f):
        x = torch.linspace(-1, 1, 12, requires_grad=True)
        y = f(x).sum()
        for _ in range(3):
            y = torch.autograd.grad(y, x, create_graph=True)[0].sum()
        return torch.autograd.grad(y, x)[0]

    f = lambda x: torch.exp(x) * torch.sin(x)
    torch.testing.assert_close(run(braze.compile(f)), run(f))


def test_dropout_is_drawn_as_in_the_forward_pass():
    def run(f):
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 64, requires_grad=True)
        g, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return g, torch.autograd.grad(g.sum(), x)[0], torch.rand(2)

    f = lambda x: F.dropout(x, 0.5) ** 3
    compiled = braze.compile(f)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(f))


def test_sizes_that_change():
    f = lambda x: torch.softmax(x * x, -1).cumsum(-1)
    compiled = braze.compile(f, dynamic=True)
    for n in (3, 5, 3, 8, 1):
        x = torch.randn(2, n, dtype=torch.float64)
        torch.testing.assert_close(penalty(compiled, x), penalty(f, x))


def test_many_kinds_run_node_by_node():
    f = lambda x: torch.tanh(x) ** 2
    compiled = braze.compile(f, dynamic=True)
    for n in range(2, 14):
        x = torch.randn(n)
        torch.testing.assert_close(penalty(compiled, x), penalty(f, x))


def test_convolution_and_norm():
    conv = torch.randn(4, 3, 3, 3)
    check(lambda x, w: F.group_norm(F.conv2d(x, w, padding=1), 2).relu().mean((2, 3)), torch.randn(2, 3, 8, 8), conv, tolerance=1e-3)


def test_errors_are_eagers():
    def f(x):
        return torch.exp(x)

    x = torch.randn(4, requires_grad=True)
    out = braze.compile(f)(x)
    torch.autograd.grad(out.sum(), x, create_graph=True)
    out = braze.compile(f)(x)
    torch.autograd.grad(out.sum(), x)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_from_many_threads():
    f = lambda x, w: torch.tanh(x @ w).sum(1)
    compiled = braze.compile(f)
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    expected, failures = penalty(f, x, w), []

    def work():
        try:
            for _ in range(5):
                for got, want in zip(penalty(compiled, x, w), expected, strict=True):
                    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
