"""The same compiled function from many threads, first call included."""

import threading

import pytest
import torch
from torch import nn

import braze

N_THREADS = 100


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    yield


def storm(work):
    """work(k) on a hundred threads that start together; the first error is raised."""
    barrier = threading.Barrier(N_THREADS)
    errors = []

    def run(k):
        try:
            barrier.wait(60)
            work(k)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("fullgraph", [True, False])
def test_functions(fullgraph):
    def f(x, scale, n):
        return (x * scale + n).relu().sum(-1)

    compiled = braze.compile(f, fullgraph=fullgraph)

    def work(k):
        for i in range(10):
            x = torch.linspace(-1, 1, 8 * (2 + (k + i) % 3)).reshape(-1, 8)
            torch.testing.assert_close(compiled(x, 0.5 + k, i), f(x, 0.5 + k, i))

    storm(work)


def test_graph_breaks_and_state():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            y = self.linear(x)
            if y.sum() > 0:
                y = y * 2
            return y + 1

    module = Counter().requires_grad_(False)
    compiled = braze.compile(module)

    def work(k):
        for i in range(5):
            x = torch.full((3, 4), float((k + i) % 7 - 3))
            torch.testing.assert_close(compiled(x), module(x))

    storm(work)


def test_training():
    def f(x, s):
        return (x * s).tanh().sum()

    compiled = braze.compile(f)

    def work(k):
        for i in range(5):
            x = torch.linspace(-1, 1, 6).requires_grad_()
            s = 1.0 + (k + i) % 5
            (expected,) = torch.autograd.grad(f(x, s), x)
            (given,) = torch.autograd.grad(compiled(x, s), x)
            torch.testing.assert_close(given, expected)

    storm(work)


def test_many_functions_at_once():
    compiled = [braze.compile(lambda x, k=k: x * k + k) for k in range(N_THREADS)]
    x = torch.arange(4.0)
    storm(lambda k: torch.testing.assert_close(compiled[k](x), x * k + k))


def test_reset_meanwhile():
    def f(x, n):
        return x * n + 1

    compiled = braze.compile(f)

    def work(k):
        for i in range(10):
            if k % 25 == 0:
                braze.reset()
            x = torch.arange(float(2 + k % 3))
            torch.testing.assert_close(compiled(x, i), f(x, i))

    storm(work)
