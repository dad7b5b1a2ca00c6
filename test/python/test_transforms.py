"""Functional transforms (torch.func, torch.vmap, forward mode) inside of compiled calls and around them."""
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import (functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap)
from torch.utils import _pytree as pytree

import braze
from same_as_eager import compare, tensors_of


def L(*sizes):
    return torch.randn(*sizes).requires_grad_()


def R(*sizes):
    return torch.randn(*sizes)


def clean():
    """No level of a transform is left behind."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() == 0 and torch.autograd.forward_ad._current_level == -1


def same(fn, *make, whole=True, tolerance=1e-4):
    """Calls fn eagerly and compiled on equal arguments, twice; compares results and gradients."""
    compiled = braze.compile(fn, fullgraph=whole)
    for seed in range(2):
        seen = []
        for f in (fn, compiled):
            torch.manual_seed(seed)
            args = [m() for m in make]
            out = tensors_of(f(*args))
            tracked = [o for o in out if o.requires_grad]
            if tracked:
                torch.autograd.backward([o.square().sum() for o in tracked])
            leaves = [a.grad for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
            seen.append((out, leaves, torch.get_rng_state()))
            assert clean()
        (out, leaves, state), (got, got_leaves, got_state) = seen
        assert [o.requires_grad for o in out] == [o.requires_grad for o in got]
        for e, g in zip(out, got, strict=True):
            compare(e, g, "result", tolerance)
        for e, g in zip(leaves, got_leaves, strict=True):
            assert (e is None) == (g is None)
            if e is not None:
                torch.testing.assert_close(g, e, rtol=tolerance, atol=tolerance)
        assert torch.equal(state, got_state)
    return compiled


def written(x):
    y = x.clone()
    y[0] = 1
    y.mul_(2).add_(x)
    return y


VMAP = {
    "dot": (lambda a, b: vmap(torch.dot)(a, b), lambda: R(4, 3), lambda: R(4, 3)),
    "in_dims": (lambda a, b: vmap(lambda x, y: x @ y, in_dims=(1, None))(a, b), lambda: R(3, 5), lambda: R(3, 2)),
    "out_dims": (lambda a: vmap(lambda x: (x.sin(), x.sum()), out_dims=(1, 0))(a), lambda: R(4, 3)),
    "nested": (lambda a, b: vmap(vmap(torch.mul, (0, None)), (None, 0))(a, b), lambda: R(3), lambda: R(4)),
    "pytree": (lambda a: vmap(lambda d: {"s": d["a"] + d["b"][0]}, in_dims=({"a": 0, "b": [1]},))({"a": a, "b": [a.t()]}), lambda: R(4, 3)),
    "chunks": (lambda a: vmap(lambda x: x.cos() * x.sum(), chunk_size=3)(a), lambda: R(8, 3)),
    "in_place": (lambda a: vmap(written)(a), lambda: R(4, 3)),
    "closure": (lambda a, w: vmap(lambda x: F.linear(x, w).relu())(a), lambda: R(4, 3), lambda: R(2, 3)),
    "gradient": (lambda a, w: vmap(lambda x: F.layer_norm(w @ x, (2,)))(a), lambda: L(4, 3), lambda: L(2, 3)),
    "constants": (lambda a: vmap(lambda x: x + torch.tensor([1., 2., 3.]) + torch.arange(3) + torch.ones(3))(a), lambda: R(4, 3)),
    "same": (lambda a: vmap(lambda x: x + torch.randn(3), randomness="same")(a), lambda: R(4, 3)),
    "different": (lambda a: vmap(lambda x: F.dropout(x, 0.5), randomness="different")(a), lambda: R(4, 3)),
    "index": (lambda a, i: vmap(lambda x, k: x[k])(a, i), lambda: R(4, 3), lambda: torch.randint(0, 3, (4, 2))),
    "conv": (lambda a, w: vmap(F.conv2d, (0, 0))(a, w), lambda: R(2, 1, 3, 6, 6), lambda: R(2, 4, 3, 3, 3)),
    "softmax": (lambda a: vmap(lambda x: x.softmax(-1).log())(a), lambda: R(4, 3, 5)),
    "one_hot": (lambda i: vmap(lambda k: F.one_hot(k, 5))(i), lambda: torch.randint(0, 5, (4, 3))),
    "where": (lambda a: vmap(lambda x: torch.where(x > 0, x, -x).max(-1))(a), lambda: R(4, 3)),
    "keywords": (lambda a, s: vmap(lambda x, scale: x * scale)(a, scale=s), lambda: R(4, 3), lambda: R(3)),
    "decorator": (vmap(lambda x: x.sin().sum()), lambda: R(4, 3)),
}


@pytest.mark.parametrize("name", VMAP)
def test_vmap(name):
    fn, *make = VMAP[name]
    same(fn, *make)


def loss(w, x, y):
    return F.mse_loss(torch.tanh(x @ w), y)


DERIVATIVES = {
    "grad": (lambda w, x, y: grad(loss)(w, x, y), lambda: R(3, 2), lambda: R(4, 3), lambda: R(4, 2)),
    "argnums": (lambda w, x, y: grad(loss, argnums=(0, 1))(w, x, y), lambda: R(3, 2), lambda: R(4, 3), lambda: R(4, 2)),
    "grad_and_value": (lambda w, x, y: grad_and_value(loss)(w, x, y), lambda: R(3, 2), lambda: R(4, 3), lambda: R(4, 2)),
    "aux": (lambda x: grad(lambda t: (t.sin().sum(), t * 2), has_aux=True)(x), lambda: R(3)),
    "outer_gradient": (lambda w, x, y: grad(loss)(w, x, y).square().sum(), lambda: L(3, 2), lambda: L(4, 3), lambda: R(4, 2)),
    "per_sample": (lambda w, x, y: vmap(grad(loss), (None, 0, 0))(w, x, y), lambda: R(3, 2), lambda: R(4, 3), lambda: R(4, 2)),
    "per_sample_outer": (lambda w, x, y: vmap(grad(loss), (None, 0, 0))(w, x, y), lambda: L(3, 2), lambda: R(4, 3), lambda: R(4, 2)),
    "second": (lambda x: grad(lambda t: grad(lambda u: (u ** 3).sum())(t).sum())(x), lambda: R(3)),
    "second_outer": (lambda x: grad(lambda t: (t ** 3).sum())(x), lambda: L(3)),
    "vjp": (lambda x, v: (lambda r: (r[0], r[1](v)))(vjp(lambda t: t.sin() * t, x)), lambda: R(3), lambda: R(3)),
    "vjp_aux": (lambda x, v: (lambda r: (r[0], r[1](v), r[2]))(vjp(lambda t: (t.sin(), t * 2), x, has_aux=True)), lambda: R(3), lambda: R(3)),
    "vjp_twice": (lambda x, v: (lambda r: (r[1](v), r[1](v * 2)))(vjp(lambda t: t.sin() * t, x)), lambda: R(3), lambda: R(3)),
    "jvp": (lambda x, v: jvp(lambda t: t.sin() * t, (x,), (v,)), lambda: R(3), lambda: R(3)),
    "jvp_outer": (lambda x, v: jvp(lambda t: t.sin() * t, (x,), (v,)), lambda: L(3), lambda: L(3)),
    "jacrev": (lambda x: jacrev(lambda t: t.sin() * t.sum())(x), lambda: R(3)),
    "jacrev_chunks": (lambda x: jacrev(lambda t: t.sin() * t.sum(), chunk_size=2)(x), lambda: R(5)),
    "jacrev_outer": (lambda x: jacrev(lambda t: t.sin() * t.sum())(x), lambda: L(3)),
    "jacfwd": (lambda x: jacfwd(lambda t: t.sin() * t.sum())(x), lambda: R(3)),
    "hessian": (lambda x: hessian(lambda t: (t.sin() * t.roll(1)).sum())(x), lambda: R(3)),
    "hessian_outer": (lambda x: hessian(lambda t: (t.sin() * t.roll(1)).sum())(x), lambda: L(3)),
    "jacobian_of_many": (lambda x, y: jacrev(lambda a, b: (a * b, a.sum()), argnums=(0, 1))(x, y), lambda: R(3), lambda: R(3)),
    "no_grad_around": (lambda x: _without(lambda: grad(lambda t: (t ** 2).sum())(x)), lambda: R(3)),
    "in_place": (lambda x: grad(lambda t: (t * 2).mul_(t).sum())(x), lambda: R(3)),
    "vmap_of_jacrev": (lambda x: vmap(jacrev(torch.sin))(x), lambda: R(4, 3)),
    "vmap_of_hessian": (lambda x: vmap(hessian(lambda t: (t ** 3).sum()))(x), lambda: R(4, 3)),
    "cross_entropy": (lambda w, x, y: vmap(grad(lambda w, x, y: F.cross_entropy(x[None] @ w, y[None])), (None, 0, 0))(w, x, y),
                      lambda: R(3, 5), lambda: R(4, 3), lambda: torch.randint(0, 5, (4,))),
    "embedding": (lambda w, i: vmap(grad(lambda w, i: F.embedding(i, w).sin().sum()), (None, 0))(w, i),
                  lambda: R(7, 3), lambda: torch.randint(0, 7, (4, 2))),
    "empty": (lambda x: jvp(lambda t: torch.linalg.pinv(t @ t.mT), (x,), (x,)), lambda: R(3, 0)),
    "fourier": (lambda x: grad(lambda t: torch.fft.rfft(t).abs().sum())(x), lambda: R(8)),
    "inside_of_a_complex_gradient": (lambda x: grad(lambda t: (torch.complex(t, t * 2) * (1 + 2j)).abs().sum())(x), lambda: R(3)),
    "conv": (lambda w, x: vmap(grad(lambda w, x: F.conv2d(x[None], w).square().sum()), (None, 0))(w, x),
             lambda: R(4, 3, 3, 3), lambda: R(2, 3, 6, 6)),
}


def _without(body):
    with torch.no_grad():
        return body()


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name):
    fn, *make = DERIVATIVES[name]
    same(fn, *make)


AUTOGRAD = {
    "jacobian": (lambda x: torch.autograd.functional.jacobian(lambda t: t.sin() * t.sum(), x), lambda: R(3)),
    "jacobian_vectorized": (lambda x: torch.autograd.functional.jacobian(lambda t: t.sin() * t.sum(), x, vectorize=True), lambda: R(3)),
    "jacobian_forward": (lambda x: torch.autograd.functional.jacobian(lambda t: t.sin() * t.sum(), x, vectorize=True, strategy="forward-mode"), lambda: R(3)),
    "hessian": (lambda x: torch.autograd.functional.hessian(lambda t: (t ** 3).sum(), x), lambda: R(3)),
    "vjp": (lambda x, v: torch.autograd.functional.vjp(lambda t: t.sin(), x, v), lambda: R(3), lambda: R(3)),
    "jvp": (lambda x, v: torch.autograd.functional.jvp(lambda t: t.sin(), x, v), lambda: R(3), lambda: R(3)),
    "hvp": (lambda x, v: torch.autograd.functional.hvp(lambda t: (t ** 3).sum(), x, v), lambda: R(3), lambda: R(3)),
    "vhp": (lambda x, v: torch.autograd.functional.vhp(lambda t: (t ** 3).sum(), x, v), lambda: R(3), lambda: R(3)),
    "batched": (lambda x, v: torch.autograd.grad(x.sin() * x, x, v, is_grads_batched=True)[0], lambda: L(3), lambda: R(5, 3)),
    "batched_create": (lambda x, v: torch.autograd.grad(x.sin() * x, x, v, is_grads_batched=True, create_graph=True)[0], lambda: L(3), lambda: R(5, 3)),
    "materialized": (lambda x, w: torch.autograd.grad((x * 2).sum(), (x, w), materialize_grads=True), lambda: L(3), lambda: L(2)),
    "by_name": (lambda x, w: torch.autograd.grad((x * w).sum(), {"x": x, "w": w}), lambda: L(3), lambda: L(3)),
}


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd_functional(name):
    fn, *make = AUTOGRAD[name]
    same(fn, *make, whole=name != "jacobian_forward")     # dual tensors within vmap have no batching rule


class Net(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.norm = nn.BatchNorm1d(4) if norm else nn.Identity()

    def forward(self, x):
        return self.second(self.norm(self.first(x)).relu())


def test_functional_call():
    net = Net()

    def step(params, x, y):
        return grad_and_value(lambda p: F.mse_loss(functional_call(net, p, (x,)), y))(params)

    def params():
        return {k: v.detach() * 2 for k, v in net.named_parameters()}
    before = {k: v.clone() for k, v in net.state_dict().items()}
    same(step, params, lambda: R(5, 3), lambda: R(5, 2))
    same(lambda p, x: functional_call(net, p, (x,)), lambda: {k: v.requires_grad_() for k, v in params().items()}, lambda: R(5, 3))
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert all(isinstance(p, nn.Parameter) for p in net.parameters())


def test_per_sample_gradients_of_a_module():
    net = Net()

    def per_sample(params, x, y):
        def loss(params, x, y):
            return F.mse_loss(functional_call(net, params, (x[None],)), y[None])
        return vmap(grad(loss), (None, 0, 0))(params, x, y)
    same(per_sample, lambda: {k: v.detach() for k, v in net.named_parameters()}, lambda: R(5, 3), lambda: R(5, 2))


def test_ensembles():
    nets = [Net() for _ in range(3)]
    params, buffers = stack_module_state(nets)
    base = Net().to("meta")

    def run(params, buffers, x):
        return vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), (0, 0, None))(params, buffers, x)
    compiled = same(run, lambda: {k: v.detach().requires_grad_() for k, v in params.items()}, lambda: buffers, lambda: R(5, 3))
    x = R(5, 3)
    torch.testing.assert_close(compiled(params, buffers, x), torch.stack([n(x) for n in nets]))


def test_buffers_that_change():
    net = Net(norm=True).train()

    def run(params, buffers, x):
        out = functional_call(net, (params, buffers), (x,))
        return out, buffers

    def state():
        return {k: v.detach().clone() for k, v in net.named_parameters()}
    same(run, state, lambda: {k: v.clone() for k, v in net.named_buffers()}, lambda: R(5, 3))
    assert net.norm.num_batches_tracked == 0


def test_training_with_an_inner_loop():
    """Model-agnostic meta-learning: gradients through steps of gradient descent."""
    net = Net()

    def adapt(params, x, y):
        def loss(p):
            return F.mse_loss(functional_call(net, p, (x,)), y)
        for _ in range(2):
            grads = grad(loss)(params)
            params = {k: params[k] - 0.1 * grads[k] for k in params}
        return loss(params)
    same(adapt, lambda: {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}, lambda: R(5, 3), lambda: R(5, 2))


def dual(x, t):
    with torch.autograd.forward_ad.dual_level():
        d = torch.autograd.forward_ad.make_dual(x, t)
        out = torch.autograd.forward_ad.unpack_dual(d.sin() * d)
        return out.primal, out.tangent


def test_forward_mode():
    same(dual, lambda: R(3), lambda: R(3))
    same(dual, lambda: L(3), lambda: R(3))


def test_dual_tensors_from_outside_run_eagerly():
    f = braze.compile(lambda x: x.sin() * x)
    x, t = R(3), R(3)
    torch.testing.assert_close(f(x), x.sin() * x)
    with torch.autograd.forward_ad.dual_level():
        out = torch.autograd.forward_ad.unpack_dual(f(torch.autograd.forward_ad.make_dual(x, t)))
        torch.testing.assert_close(out.tangent, (x.cos() * x + x.sin()) * t)
        torch.testing.assert_close(f(x), x.sin() * x)
        assert torch.autograd.forward_ad._current_level == 0
    assert clean()


AROUND = {
    "vmap": lambda f, x: vmap(f)(x),
    "grad": lambda f, x: vmap(grad(lambda t: f(t).sum()))(x),
    "jvp": lambda f, x: jvp(f, (x,), (torch.ones_like(x),)),
    "jacrev": lambda f, x: jacrev(f)(x),
    "nothing_mapped": lambda f, x: vmap(lambda t: t + f(x).sum())(x),
}


@pytest.mark.parametrize("name", AROUND)
def test_transforms_around_compiled_functions(name):
    def plain(x):
        return x.sin() * x
    compiled = braze.compile(plain)
    x = R(4, 3)
    torch.testing.assert_close(compiled(x), plain(x))     # an entry that a call inside must not take
    torch.testing.assert_close(compiled(x[0]), plain(x[0]))
    for _ in range(2):
        torch.testing.assert_close(AROUND[name](compiled, x), AROUND[name](plain, x))
    torch.testing.assert_close(compiled(x), plain(x))
    assert clean()


def test_randomness_around_compiled_functions_is_refused():
    f = braze.compile(lambda: torch.randn(3))
    f()
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda x: x + f())(R(4, 3))


def branches(x):
    return x.sin() if x.sum() > 0 else x.cos()


def test_errors_are_eagers():
    for fn, message in ((lambda x: vmap(branches)(x), "data-dependent control flow"),
                        (lambda x: vmap(lambda t: t + torch.randn(3))(x), "randomness"),
                        (lambda x: vmap(lambda t: t.item())(x), "item"),
                        (lambda x: vmap(torch.dot)(x, x[:2]), "same size"),
                        (lambda x: vmap(torch.sin, in_dims=5)(x), "in_dim"),
                        (lambda x: grad(torch.sin)(x), "scalar"),
                        (lambda x: vmap(lambda t: torch.zeros(3).add_(t))(x), "in-place|inplace|broadcast")):
        for _ in range(2):
            with pytest.raises((RuntimeError, ValueError), match=message):
                braze.compile(fn)(R(4, 3))
            assert clean()
    with pytest.raises(braze.Unsupported, match="data-dependent control flow"):
        braze.compile(lambda x: vmap(branches)(x), fullgraph=True)(R(4, 3))
    assert clean()


@braze.disable
def shows(x):
    print("inside", end="")
    return x * 2


def test_a_break_inside_of_a_transform_runs_it_eagerly(capsys):
    def f(x):
        y = x.sin()
        z = vmap(grad(lambda t: shows(t).sum()))(y)
        return (z + y).cos()
    compiled = braze.compile(f)
    x = R(4, 3)
    expected = f(x)
    assert capsys.readouterr().out == "inside"
    for _ in range(2):
        torch.testing.assert_close(compiled(x), expected)
        assert capsys.readouterr().out == "inside"
        assert clean()
    braze.reset()
    compiled(x)
    assert braze.counters()["graphs"] == 2      # before and after


def in_inference_mode(x):
    with torch.inference_mode():
        out, pull = vjp(torch.sin, x)
        return grad(lambda t: (t ** 2).sum())(x) + pull(x)[0], vmap(torch.sin)(x)


def test_inference_mode():
    same(in_inference_mode, lambda: R(3), whole=False)
    same(lambda x: torch.inference_mode()(vmap(torch.sin))(x), lambda: R(3), whole=False)
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_exceptions_leave_transforms_in_order():
    def fails(x):
        raise KeyError("no")

    def f(x):
        try:
            vmap(fails)(x)
        except KeyError:
            return vmap(torch.sin)(x)
    same(f, lambda: R(4, 3), whole=False)


def test_derivative_functions_that_leave_the_call():
    def f(x):
        out, pull = vjp(torch.sin, x.cos())
        return out, pull
    x, v = R(3), R(3)
    (out, pull), (got, got_pull) = f(x), braze.compile(f)(x)
    torch.testing.assert_close(got, out)
    torch.testing.assert_close(got_pull(v), pull(v))

    def broken(x, v):
        out, pull = vjp(torch.sin, x.cos())
        print(end="")
        return out, pull(v)
    same(broken, lambda: R(3), lambda: R(3), whole=False)


def test_values_that_escape_a_transform():
    kept = []

    def f(x):
        kept.clear()

        def inner(t):
            kept.append(t * 2)
            return t.sum()
        return grad(inner)(x)
    x = R(3)
    compiled = braze.compile(f)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), torch.ones(3))
        assert torch._C._functorch.is_gradtrackingtensor(kept[0])


class Twice(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 5


def test_custom_functions_in_transforms_run_eagerly():
    same(lambda x: vmap(grad(lambda t: Twice.apply(t).sum()))(x), lambda: R(4, 3), whole=False)


def test_batch_sizes_that_change():
    braze.reset()
    f = braze.compile(lambda a, w: vmap(lambda x: (w @ x).softmax(-1))(a), fullgraph=True)
    w = R(2, 3)
    for n in (4, 5, 7, 9):
        a = R(n, 3)
        torch.testing.assert_close(f(a, w), (a @ w.t()).softmax(-1))
    assert braze.counters()["graphs"] == 2


@pytest.mark.parametrize("make", [lambda: (lambda x: jvp(lambda t: t.sin() * t, (x,), (x,)), R), lambda: (jacfwd(torch.sin), R)],
                         ids=["jvp", "jacfwd"])
def test_sizes_that_change_in_forward_mode(make):
    fn, argument = make()
    braze.reset()
    f = braze.compile(fn, fullgraph=True)
    for n in (4, 5, 7, 9):
        x = argument(n)
        for e, g in zip(tensors_of(fn(x)), tensors_of(f(x)), strict=True):
            torch.testing.assert_close(g, e)
    assert braze.counters()["graphs"] == 2


def test_modules_that_show_their_attributes():
    norm = nn.BatchNorm1d(3, track_running_stats=False)
    same(lambda x: vmap(norm)(x), lambda: R(2, 4, 3))


def test_nothing_is_kept():
    before = None
    f = braze.compile(lambda x: vmap(grad(lambda t: (t ** 2).sum()))(x), fullgraph=True)
    for _ in range(3):
        f(R(4, 3))
        braze.reset()
        f(R(4, 3))
        gc.collect()
        now = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
        assert before is None or now <= before
        before = now
