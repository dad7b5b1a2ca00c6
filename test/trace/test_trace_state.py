"""Torch's state around a trace: random numbers, modes, natives, and what a failed trace leaves behind."""
import pytest
import torch
import torch.nn.functional as F

import trace_driver
from trace_driver import Refused, check, trace

R = torch.randn

RANDOM = {
    "rand": lambda x: (torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(7)),
    "like": lambda x: (torch.rand_like(x), torch.bernoulli(x.sigmoid()), torch.normal(x, 1.0)),
    "in_place": lambda x: (x.clone().normal_(), x.clone().uniform_(1, 2), x.clone().exponential_(), x.clone().random_(3)),
    "dropout": lambda x: F.dropout(x, 0.5) + F.dropout(x * 2, 0.1),
    "feature_dropout": lambda x: F.dropout2d(x.view(1, 5, 2, 2), 0.5) + 1,
    "multinomial": lambda x: torch.multinomial(x.view(-1).softmax(0), 2),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "other_layout": lambda x: (F.dropout(x.view(4, 5).t(), 0.5), torch.empty(5, 4).t().uniform_(), x.view(4, 5).t().clone().random_(3)),
}


@pytest.mark.parametrize("name", RANDOM)
def test_same_draws(name):
    check(lambda: (RANDOM[name], (R(20),)))


def test_own_generator():
    def make():
        g = torch.Generator()
        g.manual_seed(7)
        return (lambda x: x + torch.rand(3, generator=g)), (R(3),)
    # Replaying draws too: each consumer gets a generator of its own.
    fn, args = make()
    traced = trace(fn, args)
    fresh, _ = make()
    torch.testing.assert_close(traced.run(), fresh(*args))


MODES = {
    "no_grad": lambda x: _within(torch.no_grad(), lambda: x * 2),
    "enable_grad": lambda x: _within(torch.enable_grad(), lambda: x * 2),
    "inference": lambda x: _within(torch.inference_mode(), lambda: (x * 2).add_(1)) + 1,
    "autocast": lambda x: _within(torch.autocast("cpu", dtype=torch.bfloat16), lambda: x @ x) + 1,
    "autocast_in_place": lambda x: _within(torch.autocast("cpu", dtype=torch.bfloat16), lambda: x.clone().addmm_(x, x)),
    "autocast_off_inside": lambda x: _within(torch.autocast("cpu", enabled=False), lambda: x @ x),
}


def _within(mode, body):
    with mode:
        return body()


@pytest.mark.parametrize("name", MODES)
def test_modes_inside(name):
    before = trace_driver.modes()
    check(lambda: (MODES[name], (R(4, 4),)), tolerance=1e-2 if "autocast" in name else 2e-5)
    assert trace_driver.modes() == before


def test_modes_around():
    words = trace_driver.describe_modes()
    assert "grad" in words and "float" in words.lower()
    plain = trace_driver.modes()
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with mode:
            assert trace_driver.modes() != plain
    torch.set_default_dtype(torch.float64)
    try:
        assert trace_driver.modes() != plain
        check(lambda: ((lambda x: x + torch.ones(3)), (R(3),)))
    finally:
        torch.set_default_dtype(torch.float32)
    assert trace_driver.modes() == plain


def test_in_inference_mode():
    with torch.inference_mode():
        check(lambda: ((lambda x, y: (x.add_(1), x @ y)[1]), (R(3, 3), R(3, 3))))


def test_a_tensor_that_is_made_outside_of_inference_mode_is_refused():
    trace(lambda x: _within(torch.inference_mode(), lambda: x * 2), (R(3),))   # the reverse is not
    x = R(3)
    with torch.inference_mode():
        check(lambda: ((lambda x: x.t() + 1), (R(3, 3),)))
        with pytest.raises(Refused, match="inference"):
            trace(lambda x: _within(torch.inference_mode(False), lambda: x * 2), (x,))


def test_a_mode_left_on_is_refused():
    def leaves(x):
        torch._C._set_grad_enabled(not torch.is_grad_enabled())
        return x + 1
    before = trace_driver.modes()
    with pytest.raises(Refused, match="mode"):
        trace(leaves, (R(3),))
    assert trace_driver.modes() == before


def test_failed_traces_leave_nothing():
    before = trace_driver.modes()
    for _ in range(3):
        with pytest.raises(Refused):
            trace(lambda x: _within(torch.autocast("cpu"), lambda: (x @ x).sum().item()), (R(3, 3),))
    assert trace_driver.modes() == before
    x = R(3, 3)
    y = x.add_(1) @ x
    assert type(y) is torch.Tensor and y.data_ptr() != 0 and not torch._is_functional_tensor(y)


def test_functional_transforms_inside():
    def fn(x):
        return torch.vmap(torch.func.grad(lambda t: t.sin().sum()))(x), torch.func.jvp(torch.sin, (x,), (x,))[1]
    check(lambda: (fn, (R(4, 3),)))


def test_failed_traces_leave_functional_transforms():
    before = trace_driver.modes()
    for transform in (torch.vmap, torch.func.grad, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))):
        with pytest.raises((Refused, RuntimeError)):
            trace(transform(lambda t: t.sum().item() * t.sum()), (R(3, 3),))
        assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
        assert trace_driver.modes() == before
    with pytest.raises(RuntimeError, match="functional transform"):
        torch.vmap(lambda t: trace_driver.Traced(lambda x: x + 1, (torch.ones(3),)))(R(2, 2))


def test_a_mode_object_that_outlives_its_trace():
    kept = []

    def enters(x):
        mode = torch._C._InferenceMode(True)
        mode.__enter__()
        kept.append(mode)
        return (x * 2).sum().item()
    before = trace_driver.modes()
    with pytest.raises(Refused):
        trace(enters, (R(3),))
    kept.clear()      # restores the dispatch keys that it found inside the trace
    assert type(R(3) + 1) is torch.Tensor
    assert trace_driver.modes() == before
    check(lambda: ((lambda x: x + 1), (R(3),)))


def test_other_state_is_refused():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Nothing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))
    with Nothing(), pytest.raises(RuntimeError, match="dispatch mode"):
        trace_driver.Traced(lambda x: x + 1, (R(3),))
    with torch.device("cpu"), pytest.raises(RuntimeError, match="function mode"):
        trace_driver.Traced(lambda x: x + 1, (R(3),))


def test_natives():
    kind = trace_driver.classify
    for native in (torch.add, torch._C._nn.gelu, torch.Tensor.add_, R(2).view, torch._C.TensorBase.__getitem__,
                   torch._C._linalg.linalg_norm, torch._C._fft.fft_fft, torch.tensor, torch._C._set_grad_enabled,
                   torch._C.TensorBase.__add__, torch._C._InferenceMode(True).__enter__, torch.conv2d, F.linear, torch.zeros, torch.Tensor.size, torch.ops.aten.relu._op, torch.ops.aten.add.Tensor._op):
        assert kind(native) == "tensor", native
    for native in (torch.is_grad_enabled, torch.get_default_dtype, torch.device, torch.Size, torch.finfo,
                   torch.is_autocast_enabled, torch.Size([2]).numel):
        assert kind(native) == "pure", native
    for native in (torch.Tensor.numpy, torch.Tensor.tolist, R(2).data_ptr, torch.from_numpy):
        assert kind(native) == "break" and trace_driver.break_reason(native)
    for native in (len, print, dict.get, object.__init_subclass__, torch._C._jit_set_profiling_executor):
        assert kind(native) == "unknown", native


def test_constants():
    for constant in (torch.float32, torch.device("cpu"), torch.strided, torch.channels_last, torch.Size([1]), torch.finfo(torch.float32)):
        assert trace_driver.is_constant(constant)
    assert not trace_driver.is_constant(torch.ones(1)) and not trace_driver.is_constant(3)


def test_attributes():
    t = trace_driver._trace_test.Trace(False, False)
    x = t.stand_in(R(2, 3), "", 0)
    assert t.attribute(x, "shape") == (2, 3) and t.attribute(x, "dtype") is torch.float32
    assert t.is_traced(t.attribute(x, "T")) and t.attribute(x, "T").shape == (3, 2)
    assert t.attribute(x, "requires_grad") is False and t.attribute(x, "is_leaf") is True
    for hidden in ("grad", "_base", "_version", "__array_interface__"):
        with pytest.raises(RuntimeError, match="Unsupported"):
            t.attribute(x, hidden)
    t.close()


def test_stock_compile_works_beside():
    """The process-wide kernels do nothing outside a trace."""
    x = R(4)
    with torch.no_grad():
        got = torch.compile(lambda t: (t * 2).add_(1).sin(), backend="aot_eager")(x)
    torch.testing.assert_close(got, (x * 2 + 1).sin())
    m = torch.nn.BatchNorm1d(4).train()
    y = R(8, 4)
    want = torch.nn.functional.batch_norm(y, None, None, m.weight, m.bias, True)
    torch.testing.assert_close(torch.compile(m, backend="aot_eager")(y), want)
    assert int(m.num_batches_tracked) == 1 and not torch.equal(m.running_mean, torch.zeros(4))
