"""Compiled regions under autograd: gradients, the node's behaviour, what is saved, second derivatives."""
import threading
import weakref

import pytest
import torch
from torch import nn

import braze


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    torch.manual_seed(0)


BACKENDS = pytest.mark.parametrize("backend", ["eager", "braze"])


def leaves(tensors):
    return [t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t for t in tensors]


def flat(result):
    return [r for r in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(r, torch.Tensor)]


def run(f, args):
    """Results, and the gradients of a weighted sum of those that have any."""
    args = leaves(args)
    results = flat(f(*args))
    tracked = [r for r in results if r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).reshape(r.shape) for r in tracked]
    wanted = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    gradients = torch.autograd.grad([(r * w).sum() for r, w in zip(tracked, weights)], wanted, allow_unused=True) if tracked else []
    return results, gradients, args


def check(f, args, backend):
    compiled = braze.compile(f, backend=backend)
    for _ in range(2):
        want, want_gradients, want_args = run(f, args)
        got, got_gradients, got_args = run(compiled, args)
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert g.requires_grad == w.requires_grad
            torch.testing.assert_close(g, w)
        for g, w in zip(got_gradients, want_gradients):
            assert (g is None) == (w is None)
            if w is not None:
                torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
        for g, w in zip(got_args, want_args):
            if isinstance(w, torch.Tensor):
                torch.testing.assert_close(g, w)
    assert braze.counters()["skipped"] == {}
    assert braze.counters()["graphs"] >= 1


def x(*sizes, grad=True):
    return torch.randn(*sizes, requires_grad=grad)


def detached_part(a, b):
    return a * b.detach() + b, a.detach() * 2, a.detach()


def frozen_part(a, b):
    with torch.no_grad():
        scale = a.abs().mean()
    return a * scale + b


def changes_data(a, state):
    state.mul_(0.9).add_(a.detach().mean(0), alpha=0.1)
    return (a - state).pow(2).sum()


def changes_tracked(a, b):
    c = a * 2
    c.mul_(b)
    c[0] = b[0] * 3
    return c


def views(a, b):
    c = a + b
    return c.t(), c[0], a.view(-1)


def unused(a, b):
    return a.exp()


def normalized(a, weight, bias):
    return nn.functional.gelu(nn.functional.layer_norm(a, (8,), weight, bias)).sum(-1)


CASES = {
    "pointwise": (lambda a, b: torch.tanh(a * b) + b, [x(3, 4), x(4)]),
    "products": (lambda a, b, c: torch.relu(a @ b + c) @ b.t(), [x(5, 3), x(3, 4), x(4)]),
    "detach": (detached_part, [x(3, 4), x(3, 4)]),
    "no_grad": (frozen_part, [x(3, 4), x(3, 4)]),
    "buffer": (changes_data, [x(6, 4), x(4, grad=False)]),
    "in place": (changes_tracked, [x(3, 4), x(3, 4)]),
    "views": (views, [x(3, 4), x(3, 4)]),
    "unused": (unused, [x(3), x(3)]),
    "one of two": (lambda a, b: a * b, [x(3, 4, grad=False), x(3, 4)]),
    "integers": (lambda a, b: (a[b] * 2, b + 1), [x(5, 4), torch.tensor([0, 2, 2])]),
    "norm": (normalized, [x(5, 8), x(8), x(8)]),
    "softmax": (lambda a: torch.log_softmax(a, -1)[:, 1:].exp(), [x(4, 6)]),
    "same twice": (lambda a: (a.sin(), a.sin()), [x(4)]),
    "itself": (lambda a, b: (a, a * b), [x(4), x(4)]),
    "dead end": (lambda a: (a * 2).detach(), [x(4)]),
    "expanded": (lambda a: a.sum(0, keepdim=True).expand(5, 4), [x(3, 4)]),
    "float64": (lambda a: (a * a).cumsum(0), [torch.randn(5, dtype=torch.float64, requires_grad=True)]),
}


@BACKENDS
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_eager(name, backend):
    check(*CASES[name], backend)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                    nn.Linear(8 * 16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))

    def forward(self, image):
        return self.layers(image)


@BACKENDS
def test_a_module_trains_as_in_eager(backend):
    def train(wrap):
        torch.manual_seed(1)
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        forward, losses = wrap(net), []
        for _ in range(5):
            image, label = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(forward(image), label)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, net.state_dict()

    want, want_state = train(lambda net: net)
    got, got_state = train(lambda net: braze.compile(net, backend=backend, fullgraph=True))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    for name, value in want_state.items():
        torch.testing.assert_close(got_state[name], value, rtol=1e-3, atol=1e-4, msg=name)
    assert braze.counters()["graphs"] == 1


def square(a, b):
    return (a * b).exp()


@BACKENDS
def test_backward_may_run_again_when_the_graph_is_kept(backend):
    a, b = leaves([x(4), x(4)])
    y = braze.compile(square, backend=backend)(a, b).sum()
    y.backward(retain_graph=True)
    once = a.grad.clone()
    y.backward()
    torch.testing.assert_close(a.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@BACKENDS
def test_a_saved_tensor_that_was_written_is_noticed(backend):
    a, b = leaves([x(4), x(4)])
    y = braze.compile(square, backend=backend)(a, b)
    with torch.no_grad():
        b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@BACKENDS
def test_backward_in_another_thread(backend):
    a, b = leaves([x(4), x(4)])
    y = braze.compile(square, backend=backend)(a, b).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    torch.testing.assert_close(a.grad, (b * square(a, b)).detach())


@BACKENDS
def test_hooks_run_on_the_callers_tensors(backend):
    a, b = leaves([x(4), x(4)])
    seen = []
    a.register_hook(lambda g: g * 3)
    y = braze.compile(square, backend=backend)(a, b)
    y.register_hook(lambda g: seen.append(g.clone()))
    y.sum().backward()
    torch.testing.assert_close(a.grad, 3 * (b * square(a, b)).detach())
    assert len(seen) == 1


@BACKENDS
def test_only_some_results_take_part(backend):
    def f(a, b):
        return a * b, a.sin()

    a, b = leaves([x(4), x(4)])
    first, second = braze.compile(f, backend=backend)(a, b)
    second.sum().backward()
    torch.testing.assert_close(a.grad, a.detach().cos())
    assert b.grad is None


@BACKENDS
def test_second_derivatives(backend):
    def f(a, b):
        return (torch.tanh(a) * b).sin().sum()

    def second(g, a, b):
        first = torch.autograd.grad(g(a, b), [a, b], create_graph=True)
        return first, torch.autograd.grad(first[0].pow(2).sum() + first[1].sum(), [a, b])

    a, b = x(4), x(4)
    want = second(f, *leaves([a, b]))
    got = second(braze.compile(f, backend=backend), *leaves([a, b]))
    for g, w in zip(got[0] + got[1], want[0] + want[1]):
        torch.testing.assert_close(g, w)


@BACKENDS
def test_gradients_check_in_double(backend):
    def f(a, b):
        return torch.softmax(a @ b, -1) * torch.sigmoid(a.sum())

    args = [torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)]
    compiled = braze.compile(f, backend=backend)
    assert torch.autograd.gradcheck(compiled, args)
    assert torch.autograd.gradgradcheck(compiled, args)


@BACKENDS
def test_random_masks_are_eagers(backend):
    def f(a):
        return nn.functional.dropout(a, 0.5) * 2

    a = leaves([x(50)])
    torch.manual_seed(3)
    want = torch.autograd.grad(f(*a).sum(), a)
    torch.manual_seed(3)
    got = torch.autograd.grad(braze.compile(f, backend=backend)(*a).sum(), a)
    torch.testing.assert_close(got, want)


@BACKENDS
def test_saved_tensors_are_freed(backend):
    f = braze.compile(lambda a, b: torch.tanh(a @ b) @ b, backend=backend)
    a, b = leaves([x(4, 4), x(4, 4)])
    f(a, b).sum().backward()
    y = f(a, b)
    b_alive = weakref.ref(b)
    del b, y
    assert b_alive() is None


@BACKENDS
def test_without_gradients_the_call_has_no_history(backend):
    a, b = leaves([x(4), x(4)])
    f = braze.compile(square, backend=backend)
    with torch.no_grad():
        assert not f(a, b).requires_grad
    assert f(a, b).requires_grad
    assert not f(a.detach(), b.detach()).requires_grad
    assert braze.counters()["graphs"] == 3


@BACKENDS
def test_sizes_that_change(backend):
    f = braze.compile(square, backend=backend, dynamic=True)
    for n in (4, 7, 9):
        a, b = leaves([x(n), x(n)])
        f(a, b).sum().backward()
        torch.testing.assert_close(a.grad, (b * square(a, b)).detach())
    assert braze.counters()["graphs"] == 1


def test_a_gradient_of_another_layout():
    f = braze.compile(lambda a: a * a)
    a, = leaves([x(3, 4)])
    f(a).t().contiguous().t().sum().backward()
    want = a.grad.clone()
    a.grad = None
    f(a).backward(torch.ones(4, 3).t())
    torch.testing.assert_close(a.grad, want)


@pytest.mark.parametrize("sizes", [(33, 64), (3, 37, 20), (500, 48)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_sums_over_columns_beside_rows(sizes, dynamic):
    """Gradients of a layer norm: rows and columns of the same data, in chunks of rows that don't come out even."""
    def f(x, w, b):
        return torch.nn.functional.layer_norm(x * 2, sizes[-1:], w, b).square().sum(), x

    compiled = braze.compile(f, dynamic=dynamic)
    g = torch.Generator().manual_seed(1)
    inputs = [torch.randn(s, generator=g, requires_grad=True) for s in (sizes, sizes[-1:], sizes[-1:])]
    exact = torch.autograd.grad(f(*(t.double() for t in inputs))[0], inputs)
    for got, want in zip(torch.autograd.grad(compiled(*inputs)[0], inputs), exact, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-4)


def results_one_by_one(f, order, retain=()):
    """What each backward pass of one result after the other leaves in the gradients, or its error."""
    torch.manual_seed(1)
    first, second = x(3, 4), x(4, 2)
    results = f(first, second)
    seen = []
    for i in order:
        try:
            results[i].sum().backward(retain_graph=i in retain)
            seen.append([None if t.grad is None else t.grad.clone() for t in (first, second)])
        except RuntimeError as error:
            seen.append(str(error)[:40])
    return seen


def sharing(a, b):
    h = (a @ b).tanh()
    return h.sum(), (a * 3).cos(), h.exp().mean(), a + 1, torch.cat([a, a.exp()]), a.unbind()[1]


@BACKENDS
@pytest.mark.parametrize("order, retain", [
    ((1, 0, 3, 3, 4, 5), ()), ((0, 2), ()), ((0, 2, 1, 2), (0,)), ((2, 2, 0), (2,)), ((1, 1), ()), ((3, 3, 5, 5, 4, 4), ())])
def test_results_are_differentiated_one_after_the_other(order, retain, backend):
    want, got = (results_one_by_one(f, order, retain) for f in (sharing, braze.compile(sharing, fullgraph=True, backend=backend)))
    assert [type(step) for step in got] == [type(step) for step in want]
    for a, b in zip(got, want):
        if isinstance(b, str):
            assert a == b
        else:
            torch.testing.assert_close(a, b)


@BACKENDS
def test_a_result_that_was_written_stops_only_its_own_gradient(backend):
    f = braze.compile(lambda a: (a.exp(), a * 2), fullgraph=True, backend=backend)
    a = x(3)
    first, second = f(a)
    with torch.no_grad():
        first.mul_(2)
    second.sum().backward(retain_graph=True)
    torch.testing.assert_close(a.grad, torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()


@BACKENDS
@pytest.mark.parametrize("create_graph", [False, True])
def test_nothing_flows_through_results_that_take_no_part(create_graph, backend):
    f = braze.compile(lambda a: (a.exp(), a * 2, a.exp() * 2, torch.stack([a, a + 1])[1]), fullgraph=True, backend=backend)
    a = torch.full((3,), 1000.0, requires_grad=True)   # exp(a) is infinite: a gradient of zero times it would be nan
    results = f(a)
    for result, want in ((results[1], 2.0), (results[3], 1.0)):
        gradient, = torch.autograd.grad(result.sum(), a, create_graph=create_graph, retain_graph=True)
        torch.testing.assert_close(gradient, torch.full((3,), want))


@BACKENDS
def test_only_the_gradients_that_are_asked_for_need_their_saved_values(backend):
    f = braze.compile(lambda a, b: (a.sin() + b.cos()).sum(), fullgraph=True, backend=backend)
    a, b = x(3), x(3)
    loss = f(a, b)
    with torch.no_grad():
        b.add_(1)
    torch.testing.assert_close(torch.autograd.grad(loss, a, retain_graph=True)[0], a.cos())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, b)


def test_sizes_of_inputs_that_a_part_does_not_need():
    f = braze.compile(lambda a, b: (a.sum() * b.shape[0], (b * 2).sum(), (b @ b.T).sum()), dynamic=True, fullgraph=True)
    for n in (3, 4, 6):
        a, b = x(n), x(n, 2)
        first, second, third = f(a, b)
        second.backward()
        torch.testing.assert_close(b.grad, torch.full((n, 2), 2.0))
        first.backward(retain_graph=True)
        torch.testing.assert_close(a.grad, torch.full((n,), float(n)))
        gradient, = torch.autograd.grad(third, b, create_graph=True)
        torch.testing.assert_close(torch.autograd.grad(gradient.sum(), b)[0], torch.full((n, 2), 2.0 * n))


def test_more_parts_than_code_is_made_for():
    f = braze.compile(lambda a: [(a * i).sin() for i in range(5)], fullgraph=True)
    a = x(3)
    for mask in range(1, 32):
        results = [r for i, r in enumerate(f(a)) if mask >> i & 1]
        gradient, = torch.autograd.grad([r.sum() for r in results], a)
        torch.testing.assert_close(gradient, sum(i * (a * i).cos() for i in range(5) if mask >> i & 1) + torch.zeros(3))


def test_a_result_whose_gradient_function_raises_in_python_is_returned():
    """As in eager, where it raises only if its gradient is asked for."""
    @torch.library.custom_op("braze_tests::without_formula", mutates_args=())
    def without_formula(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @without_formula.register_fake
    def _(x):
        return torch.empty_like(x)

    def f(x):
        y = x.sin()
        return y, without_formula(y)

    x = torch.ones(3, requires_grad=True)
    loss, metric = braze.compile(f)(x)
    loss.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3).cos())
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        metric.sum().backward()
