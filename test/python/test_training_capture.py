"""What autograd's own Python API does inside a compiled call: custom functions, checkpoints, derivatives."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import braze


def L(*sizes):
    return torch.randn(*sizes).requires_grad_()


def same(fn, *make, graphs=1, tolerance=1e-5):
    """Calls fn twice, eagerly and compiled, on equal arguments; compares results and gradients."""
    compiled = braze.compile(fn, fullgraph=True)
    braze.reset()
    for seed in range(2):
        results = []
        for f in (fn, compiled):
            torch.manual_seed(seed)
            args = [m() for m in make]
            out = f(*args)
            outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor)]
            tracked = [o for o in outs if o.requires_grad]
            leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            torch.autograd.backward([o.square().sum() for o in tracked])   # grad() won't enter reentrant checkpoints
            results.append((outs, [leaf.grad for leaf in leaves]))
        (outs, grads), (got, got_grads) = results
        assert [o.requires_grad for o in outs] == [o.requires_grad for o in got]
        for e, g in zip(outs, got, strict=True):
            torch.testing.assert_close(g, e, rtol=tolerance, atol=tolerance)
        for e, g in zip(grads, got_grads, strict=True):
            assert (e is None) == (g is None)
            if e is not None:
                torch.testing.assert_close(g, e, rtol=tolerance, atol=tolerance)
    assert braze.counters()["graphs"] == graphs, braze.counters()


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return g * ctx.k * 10 + x * 0, None


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp(), x.argmax()

    @staticmethod
    def setup_context(ctx, inputs, output):
        result, index = output
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(result)

    @staticmethod
    def backward(ctx, g, _):
        result, = ctx.saved_tensors
        return g * result * 3


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 5


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        i = x.argsort()
        ctx.mark_non_differentiable(i)
        ctx.save_for_backward(i)
        ctx.set_materialize_grads(False)
        return x[i], i

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g, gi):
        assert gi is None
        i, = ctx.saved_tensors
        return torch.empty_like(g).scatter(0, i, g * 2)


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, x * y

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 + b, a - b


FUNCTIONS = {
    "saved_input": lambda x: Scale.apply(x.sin(), 3).cos(),
    "saved_result_and_setup": lambda x: Exp.apply(x)[0].sum(),
    "dirty": lambda x: (lambda y: Double.apply(y) + y)(x * 1),
    "once_differentiable": lambda x: Sorted.apply(x.sin())[0],
    "one_of_two_results": lambda x: Two.apply(x, x * 2)[1],
    "nested": lambda x: Scale.apply(Scale.apply(x, 2), 3),
    "without_gradients": lambda x: Scale.apply(x.detach(), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_custom_function(name):
    same(FUNCTIONS[name], lambda: L(4))


calls = []


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        calls.append(1)
        return g * 2


def test_side_effects_of_backward_are_not_lost():
    f = braze.compile(lambda x: Noisy.apply(x).sum())
    for n in range(1, 3):
        x = L(3)
        f(x).backward()
        assert len(calls) == n
        torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("as eager")


def test_errors_of_backward_are_eagers():
    y = braze.compile(lambda x: Wrong.apply(x))(L(3))
    with pytest.raises(ValueError, match="as eager"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    same(lambda x, w: checkpoint(lambda a, b: F.dropout((a @ b).sin(), 0.5).exp(), x, w, use_reentrant=reentrant),
         lambda: L(4, 4), lambda: L(4, 4))


def agree(make, steps=2):
    """What a training step leaves behind, eagerly and compiled."""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        fn, state = make()
        run = braze.compile(fn) if compiled else fn
        for _ in range(steps):
            x = torch.ones(3, 4).requires_grad_()
            run(x).sum().backward()
            state.append(x.grad)
        seen.append([s.clone() if isinstance(s, torch.Tensor) else s for s in state])
    for e, g in zip(*seen, strict=True):
        torch.testing.assert_close(g, e) if isinstance(e, torch.Tensor) else None
        assert isinstance(e, torch.Tensor) or e == g


def noted_in_checkpoint():
    state = []

    def body(x):
        state.append("called")
        return x.sin().exp()
    return lambda x: checkpoint(body, x, use_reentrant=False), state


def statistics_in_checkpoint():
    m = nn.BatchNorm1d(4)
    return lambda x: checkpoint(m, x * x, use_reentrant=False), [m.running_mean, m.running_var, m.num_batches_tracked]


@pytest.mark.parametrize("make", [noted_in_checkpoint, statistics_in_checkpoint])
def test_what_eager_does_twice_is_done_twice(make):
    agree(make)


class Counting(torch.autograd.Function):
    count = torch.zeros(())

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Counting.count.add_(1)
        return g * 2


class Overwriting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)


def test_changes_of_tensors_in_backward():
    f = braze.compile(lambda x: Counting.apply(x).sum())
    for n in range(1, 3):
        y = f(L(3))
        assert Counting.count == n - 1
        y.backward()
        assert Counting.count == n
    given = torch.ones(3)
    braze.compile(lambda x: Overwriting.apply(x))(L(3)).backward(given)
    torch.testing.assert_close(given, torch.full((3,), 2.0))


def test_hooks_run_when_derivatives_are_taken_inside():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: seen.append("hook"))
        return torch.autograd.grad(y.sum(), x)[0]
    compiled = braze.compile(f)
    for n in range(1, 3):
        compiled(L(3))
        assert len(seen) == n


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: None)
    z = y.sin()
    z.register_hook(lambda g: g.clamp(-0.5, 0.5))
    return z * x


def unhooked(x):
    y = x * 2
    with y.register_hook(lambda g: g * 3):
        pass
    handle = y.register_hook(lambda g: g * 5)
    handle.remove()
    return y.sin()


def hooked_inside(x):
    t = x.detach().requires_grad_()
    y = t * t
    y.register_hook(lambda g: g + 1)
    g, = torch.autograd.grad(y.sum(), t)
    return g * x


def kept_inside(x):
    y = x * 2
    y.retain_grad()
    return y.sin() * x


def test_hooks_that_only_compute():
    same(hooked, lambda: L(3))
    same(unhooked, lambda: L(3))
    same(hooked_inside, lambda: L(3))
    same(kept_inside, lambda: L(3))


def test_hooks_with_side_effects_run_when_eagers_do():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g.clone()))
        return y.sin().sum()
    compiled = braze.compile(f)
    for n in range(1, 3):
        x = L(3)
        out = compiled(x)
        assert len(seen) == n - 1
        out.backward()
        torch.testing.assert_close(x.grad, 2 * (2 * x).cos())
        torch.testing.assert_close(seen[-1], (2 * x).cos())
        assert len(seen) == n
    with pytest.raises(braze.Unsupported, match="side effects"):
        braze.compile(f, fullgraph=True)(L(3))


def test_hooks_see_what_is_there_when_they_run():
    class Scaled(nn.Module):
        factor = 2.0

        def forward(self, x):
            y = x * 2
            y.register_hook(lambda g: g * self.factor)
            return y.sum()
    m, x = Scaled(), L(3)
    compiled = braze.compile(m)
    out = compiled(x)
    m.factor = 5.0
    out.backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 10.0))


def test_handles_of_hooks_that_leave_the_call():
    def f(x):
        y = x * 2
        handle = y.register_hook(lambda g: g * 3)
        return y.sin().sum(), handle
    for remove in (False, True):
        x = L(3)
        out, handle = braze.compile(f)(x)
        if remove:
            handle.remove()
        out.backward()
        torch.testing.assert_close(x.grad, (2 if remove else 6) * (2 * x).cos())


def test_kept_gradients_of_results():
    def f(x):
        y = x * 2
        y.retain_grad()
        return y, y.sin().sum()
    x = L(3)
    y, out = braze.compile(f)(x)
    out.backward()
    torch.testing.assert_close(y.grad, y.cos())


def test_recurrent_layers():
    for make in (lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), lambda: nn.GRU(3, 4), lambda: nn.RNN(3, 4),
                 lambda: nn.LSTM(3, 4, bias=False), lambda: nn.LSTM(3, 4).eval(), lambda: nn.LSTM(3, 4, 2, dropout=0.5)):
        grads = []
        torch.manual_seed(0)
        layer, x = make(), torch.randn(2, 5, 3)
        for run in (layer, braze.compile(lambda x: layer(x), fullgraph=True)):
            layer.zero_grad()
            torch.manual_seed(1)
            given = x.clone().requires_grad_()
            out, state = run(given)
            (out.square().sum() + sum(s.sum() for s in (state if isinstance(state, tuple) else (state,)))).backward()
            grads.append([out, given.grad, *[p.grad.clone() for p in layer.parameters()]])
        for e, g in zip(*grads, strict=True):
            torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-5)
    layer.eval()
    with torch.no_grad():
        torch.testing.assert_close(braze.compile(lambda x: layer(x)[0], fullgraph=True)(x), layer(x)[0], rtol=1e-4, atol=1e-5)


def test_second_derivatives_through_a_custom_function():
    f = braze.compile(lambda x: Scale.apply(x.sin(), 3))
    for _ in range(2):
        x = L(3)
        try:
            g, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            h, = torch.autograd.grad(g.sum(), x)
        except RuntimeError:
            continue                                         # refused is right, wrong is not
        torch.testing.assert_close(h, -30 * x.sin())


def test_checkpointed_module():
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    same(lambda x: checkpoint(m, x, use_reentrant=False) + x, lambda: L(3, 4))


def penalty(x):
    g, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
    return g.square().sum()


def shared_weight(x, w):
    y = checkpoint(lambda a: (a @ w).sin(), x, use_reentrant=False)
    z = checkpoint(lambda a: checkpoint(lambda b: (b @ w).exp(), a * 0.1, use_reentrant=False).tanh(), y, use_reentrant=False)
    return z, y.cos()


def test_checkpoints_in_and_after_each_other():
    same(shared_weight, lambda: L(4, 4), lambda: L(4, 4))


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return Two.apply(x * self.w, self.w)[0] + checkpoint(torch.sin, self.w, use_reentrant=True)


def test_gradients_of_parameters():
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        m = Probe()
        run = braze.compile(m) if compiled else m
        x = torch.randn(3, 4)
        for _ in range(2):
            run(x).square().sum().backward()
        seen.append(m.w.grad)
    torch.testing.assert_close(*seen)


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * y


def penalty_of_custom(x):
    y = Exponential.apply(x.sin()).sum()
    g, = torch.autograd.grad(y, x, torch.tensor(2.0), create_graph=True)
    return g.square().sum() + y


def some_unused(x, w):
    a, b = torch.autograd.grad((x * 2).sum(), (x, w), allow_unused=True)
    return a if b is None else b


def of_a_new_leaf(x):
    t = x.detach().requires_grad_()
    g, = torch.autograd.grad(Scale.apply(t * t, 2).sum(), [t])
    return g * x


def test_derivatives_inside_of_other_things():
    same(some_unused, lambda: L(3), lambda: L(2))
    same(of_a_new_leaf, lambda: L(3))
    same(penalty_of_custom, lambda: L(3))


def test_views_out_of_custom_functions_are_not_changed_in_place():
    f = braze.compile(lambda x: Flat.apply(x * 2))
    y = f(L(2, 2))
    with pytest.raises(RuntimeError, match="custom Function"):
        y.mul_(2)


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(2, 2)


def test_derivatives_inside():
    same(lambda x: torch.autograd.grad((x ** 3).sum(), x)[0], lambda: L(3))
    same(penalty, lambda: L(3))
