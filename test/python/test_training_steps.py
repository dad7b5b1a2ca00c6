"""Whole training steps as one call: backward(), .grad, and what optimizers do."""
import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import braze
from training_programs import step


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    torch.manual_seed(0)


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def data(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(5, 6, generator=g), torch.randn(5, 3, generator=g)


def run(step, model, optimizer, compiled, n=6):
    f = braze.compile(step, fullgraph=True) if compiled else step
    return [f(model, optimizer, *data(i)) for i in range(n)]


def state_of(optimizer):
    return [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]


def compare(step, make_optimizer, warm=None, n=6, tolerance=1e-6):
    results = []
    for compiled in (False, True):
        model = net()
        optimizer = make_optimizer(model.parameters())
        if warm is not None:   # fills the optimizer's state
            warm(model, optimizer, *data(99))
        losses = run(step, model, optimizer, compiled, n)
        results.append((losses, list(model.parameters()), [p.grad for p in model.parameters()], state_of(optimizer)))
    for e, g in zip(*results, strict=True):
        for a, b in zip(e, g, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(b, a, rtol=tolerance * 10, atol=tolerance)
    assert not braze.counters()["skipped"]


OPTIMIZERS = [
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    lambda p: torch.optim.Adam(p, lr=0.01),
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1),
]


@pytest.mark.parametrize("make", OPTIMIZERS, ids=lambda m: "")
def test_steps(make):
    compare(step, make, warm=step)


def test_steps_of_rmsprop():
    """Its first steps divide by roots of almost nothing: the last bits of a product show."""
    compare(step, lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5), warm=step, tolerance=5e-6)


def test_a_step_is_one_graph_once_its_state_is_there():
    model, optimizer = net(), None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step(model, optimizer, *data(0))
    compiled = braze.compile(step, fullgraph=True)
    for i in range(5):
        compiled(model, optimizer, *data(i))
    assert braze.counters()["graphs"] == 1


def test_gradients_accumulate():
    def f(model, _, x, y):
        for i in range(2):
            F.mse_loss(model(x[i:]), y[i:]).backward()
        return model[0].weight.grad.abs().sum()

    compare(f, lambda p: torch.optim.SGD(p, lr=0.1))


def test_gradients_are_zeroed_in_place():
    def f(model, optimizer, x, y):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        return model[0].weight.grad

    model = net()
    eager = net()
    optimizer, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(eager.parameters(), lr=0.1)
    compiled = braze.compile(f, fullgraph=True)
    compiled(model, optimizer, *data(0)), f(eager, other, *data(0))
    kept = model[0].weight.grad
    for i in range(1, 4):
        got, expected = compiled(model, optimizer, *data(i)), f(eager, other, *data(i))
        assert got is kept and model[0].weight.grad is kept
        torch.testing.assert_close(got, expected)


def test_clipping_and_schedules():
    def f(model, optimizer, x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return norm

    compare(f, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), warm=step)


@pytest.mark.parametrize("backend", ["braze", "eager", "aot_eager"])
def test_the_loss_that_is_returned_has_no_second_backward_pass(backend):
    def f(x, w):
        loss = (x @ w).tanh().sum()
        loss.backward()
        return loss

    x = torch.randn(3, 4)
    w = torch.randn(4, 2, requires_grad=True)
    expected = f(x, w).detach()
    grad, w.grad = w.grad, None
    loss = braze.compile(f, fullgraph=True, backend=backend)(x, w)
    torch.testing.assert_close(loss.detach(), expected)
    torch.testing.assert_close(w.grad, grad)
    assert loss.requires_grad and loss.grad_fn is not None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_a_graph_that_is_retained_gives_gradients_again():
    def f(x, w):
        loss = (x @ w).tanh().sum()
        loss.backward(retain_graph=True)
        return loss

    x, w = torch.randn(3, 4), torch.randn(4, 2, requires_grad=True)
    loss = braze.compile(f, fullgraph=True)(x, w)
    once = w.grad.clone()
    loss.backward()
    torch.testing.assert_close(w.grad, 2 * once)


def test_only_the_inputs_that_are_named_get_gradients():
    def f(x, v, w):
        (x * v * w).sum().backward(inputs=[v])
        return x.sum()

    x = torch.randn(3)
    v, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    braze.compile(f, fullgraph=True)(x, v, w)
    torch.testing.assert_close(v.grad, x * w.detach())
    assert w.grad is None


def test_gradients_that_are_set():
    def f(p, g):
        p.grad = g
        p.grad.mul_(2)
        return p.grad + 1

    p, g = nn.Parameter(torch.randn(3)), torch.randn(3)
    expected = g * 2
    out = braze.compile(f, fullgraph=True)(p, g)
    assert p.grad is g
    torch.testing.assert_close(g, expected)
    torch.testing.assert_close(out, expected + 1)

    def clear(p):
        had = p.grad is not None
        p.grad = None
        return p * 2, had

    compiled = braze.compile(clear, fullgraph=True)
    assert compiled(p)[1] and p.grad is None
    assert not compiled(p)[1]
    assert braze.counters()["graphs"] == 3


def test_a_gradient_lives_no_longer_than_its_tensor_has_it():
    def f(model, x):
        model(x).sum().backward()

    model = net()
    compiled = braze.compile(f, fullgraph=True)
    for _ in range(3):
        compiled(model, data(0)[0])
    gone = weakref.ref(model[0].weight.grad)
    model.zero_grad()
    gc.collect()
    assert gone() is None


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_with_a_graph():
    """backward(create_graph=True) inside: gradients that can be differentiated, there and outside."""
    def penalty(p, x):
        p.grad = None
        (p * x).sin().sum().backward(create_graph=True)
        return p.grad.square().sum()

    def twice(p, x):
        p.grad = None
        (p * x).sin().sum().backward(create_graph=True)
        g, = torch.autograd.grad(p.grad.square().sum(), p)
        p.grad = None
        return g

    torch.manual_seed(0)
    start, x = torch.randn(3), torch.randn(3)
    for f in (penalty, twice):
        seen = []
        for run in (f, braze.compile(f, fullgraph=True)):
            p = nn.Parameter(start.clone())
            for _ in range(2):
                out = run(p, x)
            if f is penalty:
                g, = torch.autograd.grad(out, p)
                assert p.grad.requires_grad
                seen.append([out, p.grad, g])
                p.grad = None
            else:
                seen.append([out])
        for e, g in zip(*seen, strict=True):
            torch.testing.assert_close(g, e)


def test_hooks_run_as_in_eager():
    def f(p, x):
        (p * x).sum().backward()

    p, x, seen = nn.Parameter(torch.randn(3)), torch.randn(3), []
    compiled = braze.compile(f)
    compiled(p, x)
    first = p.grad.clone()
    p.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    compiled(p, x)
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], 2 * first)


def test_backward_into_a_graph_from_before_the_call_runs_eagerly():
    def f(h):
        (h * 2).sum().backward()

    w = torch.randn(3, requires_grad=True)
    braze.compile(f)(w * 3)
    torch.testing.assert_close(w.grad, torch.full((3,), 6.0))


def test_errors_are_eager_s():
    def f(p):
        (p * 2).backward()

    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        braze.compile(f)(nn.Parameter(torch.randn(3)))


def test_dicts_with_dtypes_in_their_keys():
    table = {("cpu", torch.float32): 2.0}

    def f(x):
        return x * table.get((x.device.type, x.dtype), 3.0)

    compiled = braze.compile(f, fullgraph=True)
    for dtype in (torch.float32, torch.float64, torch.float32):
        x = torch.ones(2, dtype=dtype)
        torch.testing.assert_close(compiled(x), f(x))
    table["cpu", torch.float64] = 4.0
    torch.testing.assert_close(compiled(torch.ones(2, dtype=torch.float64)), torch.full((2,), 4.0, dtype=torch.float64))


def test_dicts_with_tensors_as_keys():
    def f(x, table):
        return x * table[x] if x in table else x

    x, y = torch.randn(3), torch.randn(3)
    table = {x: 2.0, "n": 1}
    compiled = braze.compile(f, fullgraph=True)
    torch.testing.assert_close(compiled(x, table), x * 2)
    torch.testing.assert_close(compiled(y, table), y)
    table[y] = 3.0
    torch.testing.assert_close(compiled(y, table), y * 3)
    gone = weakref.ref(y)
    del table[y], y
    assert gone() is None


def test_tensors_that_become_one():
    def backward(a, b):
        (a * 2 + b * 3).sum().backward()
        return a.grad.clone()

    def keys(x, y):
        return x * len({x, y})

    def addresses(x, y):
        return x * len({id(x): 1, id(y): 1})

    def derivative(a, b):
        return torch.autograd.grad((a * 2 + b * 3).sum(), [a, b])

    for f in (backward, keys, addresses, derivative):
        compiled = braze.compile(f, fullgraph=True)

        def make():
            return torch.ones(1, requires_grad=True)

        for same in (False, True, False, True):
            results = []
            for g in (f, compiled):
                a = make()
                results.append(g(a, a if same else make()))
            torch.testing.assert_close(results[1], results[0])


def test_weights_that_are_tied_later():
    model, x = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)), torch.randn(2, 4)

    def f():
        model.zero_grad()
        model(x).square().sum().backward()
        return torch.ones(1) * sum(p.numel() for p in model.parameters())

    compiled = braze.compile(f)
    compiled()
    model[1].weight = model[0].weight
    count = f()
    expected = model[0].weight.grad.clone()
    assert compiled().item() == count.item()
    torch.testing.assert_close(model[0].weight.grad, expected)
