"""Calls whose results need gradients: the joint graph gives eager's results, gradients and autograd relations."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trace_driver
from joint_driver import check
from trace_driver import Refused, trace

R = torch.randn


def L(*sizes):
    return R(*sizes).requires_grad_()


def within(mode, body):
    with mode:
        return body()


def saved_then_changed(x):
    y = x.exp()
    y.add_(1)
    return y.sum()


def changed_view(x, w):
    y = x * w
    y[0] = y[1] * 2
    y.neg_().add_(1)
    z = y[1:]
    z.mul_(3)
    return y.sum(), z


def detached_write(x):
    y = x * 2
    y.detach().mul_(3)
    return y * 1


def data_write(x):
    y = x * 2
    y.data.mul_(3)
    return y * 1


def leaf_inside(x):
    y = x.detach().clone().requires_grad_()
    return torch.autograd.grad((y * y).sum(), y)[0] + x


def no_grad_part(x):
    with torch.no_grad():
        y = x * 2
        y.add_(1)
    return x * y, y


def enabled_inside(x):
    with torch.enable_grad():
        return x * 2


def write_leaf_without_grad(x):
    with torch.no_grad():
        x.add_(1)
    return x * x


def write_input(x, w):
    x.mul_(w)
    return x * 2


def write_and_return(x, w):
    x.mul_(w).add_(1)
    return x, x[1:], x.view(-1)


def write_through_detach(x):
    x.detach().add_(1)
    return x * 2


def write_both_ways(x, w):
    with torch.no_grad():
        x.add_(1)
    x.mul_(w)
    return x + 1


def second_derivative_inside(x):
    g, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
    return g.sum()


CASES = {
    "simple": (lambda x: x * 2, lambda: (L(3),)),
    "two_leaves": (lambda x, w: (x @ w).relu().sum(), lambda: (L(2, 3), L(3, 4))),
    "not_all_need_gradients": (lambda x, y: (x * y, y * 2, (y > 0).int()), lambda: (L(3), R(3))),
    "unused_leaf": (lambda x, y: x * 2 + y.detach(), lambda: (L(3), L(3))),
    "two_outputs": (lambda x: (x.sin(), x.cos()), lambda: (L(3),)),
    "same_output_twice": (lambda x: (lambda y: (y, y))(x * 2), lambda: (L(3),)),
    "sum": (lambda x: x.sum() + x.t().sum(1)[0], lambda: (L(3, 3),)),
    "gradient_is_the_tangent": (lambda x, y: x + y, lambda: (L(3), L(3))),
    "gradient_is_a_view": (lambda x: x.t(), lambda: (L(2, 3),)),
    "transposed_result": (lambda x: (x * 2).t(), lambda: (L(2, 3),)),
    "input_itself": (lambda x, y: (x, y * 2), lambda: (L(3), L(3))),
    "view_of_input": (lambda x: (x.view(-1), x[1:], x.t(), x * 2), lambda: (L(2, 3),)),
    "detached_input": (lambda x: (x.detach(), x * 2), lambda: (L(3),)),
    "detached_input_alone": (lambda x: x.detach(), lambda: (L(3),)),
    "loss_and_detached": (lambda x: (lambda y: (y, y.detach()))((x * x).sum()), lambda: (L(3),)),
    "detached_then_itself": (lambda x: (lambda y: (y.detach(), y))(x * 2), lambda: (L(3),)),
    "part_of_memory": (lambda x: (x * 2)[:, 0], lambda: (L(3, 4),)),
    "parts_of_one": (lambda x: (lambda y: (y[:2], y[1:]))(x * 2), lambda: (L(4),)),
    "part_and_whole": (lambda x: (lambda y: (y[1:], y))(x * 2), lambda: (L(4),)),
    "chunks": (lambda x: (x * 2).chunk(2), lambda: (L(4, 3),)),
    "expanded": (lambda x: x.sum().expand(3, 2), lambda: (L(3),)),
    "broadcast": (lambda x, y: x.expand(3, 4) * y, lambda: (L(3, 1), L(4))),
    "index": (lambda x, i: x[i] * 2, lambda: (L(5, 3), torch.tensor([0, 2, 2]))),
    "pad_and_cat": (lambda x, y: torch.cat([F.pad(x, (1, 1)), y]), lambda: (L(2, 2), L(3, 4))),
    "indices_and_values": (lambda x: (x.max(0), x.topk(2), x.cummax(0)), lambda: (L(4, 3),)),
    "as_strided": (lambda x: torch.as_strided(x * 2, (2, 2), (1, 2), 1).sin(), lambda: (L(6),)),
    "where": (lambda x, y: torch.where(x > 0, x, y), lambda: (L(5), L(5))),
    "undefined_gradients": (lambda x, y: torch.unbind(torch.stack([x, y]))[0] * 2, lambda: (L(4), L(4))),
    "linear_algebra": (lambda x: (torch.cdist(x, x[:2]), torch.linalg.norm(x), torch.linalg.inv(x[:3, :3])), lambda: (L(4, 3),)),
    "changed_view": (changed_view, lambda: (L(3), L(3))),
    "detached_write": (detached_write, lambda: (L(3),)),
    "data_write": (data_write, lambda: (L(3),)),
    "no_grad_part": (no_grad_part, lambda: (L(3),)),
    "leaf_inside": (leaf_inside, lambda: (L(3),)),
    "write_leaf_without_grad": (write_leaf_without_grad, lambda: (L(3),)),
    "write_input": (write_input, lambda: (R(3), L(3))),
    "write_caller's_intermediate": (write_input, lambda: (L(3) * 2, L(3))),
    "write_and_return": (write_and_return, lambda: (R(3, 2), L(3, 2))),
    "write_through_detach": (write_through_detach, lambda: (L(3) * 2,)),
    "write_both_ways": (write_both_ways, lambda: (L(3) * 2, L(3))),
    "caller's_intermediate": (lambda x: x.sin() * x, lambda: (L(3) * 2,)),
    "noncontiguous_leaf": (lambda w, x: x @ w, lambda: (R(3, 4).t().detach().requires_grad_(), R(2, 4))),
    "shared_memory_written": (lambda x, y, w: (x.add_(1), y * w)[1], lambda: (lambda b: (b[:3], b[1:], L(3)))(R(4))),
    "dropout": (lambda x: F.dropout(x, 0.5) * 1, lambda: (L(50),)),
    "feature_dropout": (lambda x: F.dropout2d(x, 0.5) + F.alpha_dropout(x, 0.3), lambda: (L(2, 5, 3, 3),)),
    "rrelu": (lambda x: F.rrelu(x, training=True), lambda: (L(20),)),
    "autocast": (lambda x, w: within(torch.autocast("cpu", dtype=torch.bfloat16), lambda: (x @ w + F.linear(x, w)).float() + x),
                 lambda: (L(4, 4), L(4, 4))),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), lambda: (L(2, 2, 5, 8),)),
    "complex": (lambda x: torch.view_as_real(torch.view_as_complex(x) * 1j).sum(), lambda: (L(3, 2),)),
    "second_derivative_inside": (second_derivative_inside, lambda: (L(3),)),
    "unused_kept_gradient": (lambda x: (lambda y: (y.retain_grad(), y.sin())[1])(x * 2), lambda: (L(3),)),
    "embedding": (lambda i, w: F.embedding(i, w).sum(), lambda: (torch.tensor([0, 2, 2]), L(4, 3))),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), lambda: (L(4, 3), torch.tensor([0, 2, 1, 1]))),
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_eager(name):
    fn, args = CASES[name]
    check(lambda: (fn, args()), gradients=2e-2 if name == "autocast" else 1e-4, tolerance=2e-2 if name == "autocast" else 2e-5)


def test_enabled_inside():
    def make():
        return enabled_inside, (L(3),)
    with torch.no_grad():
        fn, args = make()
        traced = trace(fn, args)
        assert traced.info["joint"]["tracked"] == [True]


LAYERS = {
    "linear": lambda: (nn.Linear(3, 4), R(2, 3)),
    "mlp": lambda: (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.3), nn.Linear(8, 2)), R(3, 4)),
    "batch_norm": lambda: (nn.BatchNorm1d(4), R(8, 4)),
    "batch_norm_frozen": lambda: (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval()), R(8, 4)),
    "group_norm": lambda: (nn.GroupNorm(2, 6), R(2, 6, 4, 4)),
    "convolution": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                                          nn.AdaptiveAvgPool2d(2)), R(2, 3, 9, 9)),
    "channels_last": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to(memory_format=torch.channels_last),
                              R(2, 3, 9, 9).to(memory_format=torch.channels_last)),
    "gru": lambda: (nn.GRU(3, 4), R(5, 2, 3)),
    "lstm": lambda: (nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), R(2, 5, 3)),
    "lstm_frozen": lambda: (nn.LSTM(3, 4).eval(), R(5, 2, 3)),
    "attention": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), R(2, 5, 8)),
    "tied": lambda: ((lambda m: (setattr(m[1], "weight", m[0].weight), m)[1])(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))),
                     R(2, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    def make():
        module, x = LAYERS[name]()
        return module, (x,), [module]
    check(make)


REFUSED = {
    "in_place_on_leaf": (lambda x: x.add_(1) * 2, lambda: (L(3),)),
    "saved_tensor_changed": (saved_then_changed, lambda: (L(3),)),
    "hook": (lambda x: (lambda y: (y.register_hook(lambda g: g * 3), y.sin())[1])(x * 2), lambda: (L(3),)),
    "kept_gradient": (lambda x: (lambda y: (y.retain_grad(), y)[1])(x * 2), lambda: (L(3),)),
    "new_leaf": (lambda x: x.clone().requires_grad_(), lambda: (R(3),)),
    "leaf_of_leaf": (lambda x: x.detach().requires_grad_(), lambda: (L(3),)),
    "sparse_gradient": (lambda i, w: F.embedding(i, w, sparse=True).sum(), lambda: (torch.tensor([0, 2]), L(4, 3))),
    "requires_grad_changed": (lambda x: x.requires_grad_() * 2, lambda: (R(3),)),
    "shared_memory_recorded": (lambda x, y, w: (x.mul_(w), y * 1)[1], lambda: (lambda b: (b[:3], b[1:], L(3)))(R(4))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    fn, args = REFUSED[name]
    args = args()
    with pytest.raises(Refused):
        trace(fn, args)
    assert type(torch.ones(2) + 1) is torch.Tensor and torch.is_grad_enabled()
    assert all(x.grad is None for x in args if x.is_leaf)


def test_marks():
    """What the backward pass alone needs, and what ran without gradients, is marked."""
    traced = trace(no_grad_part, (L(3),))
    assert "!no_grad" in traced.text and "!backward" in traced.text
    with torch.no_grad():
        assert "!no_grad" not in trace(no_grad_part, (L(3),)).text


def test_saved_tensor_hooks_are_refused():
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), pytest.raises(RuntimeError, match="hooks"):
        trace_driver.Traced(lambda x: x * 2, (L(3),))


def test_leaf_and_intermediate_are_told_apart():
    traced = trace(lambda x: x * 2, (L(3),))
    assert traced.trace.explain([L(3)]) == ""
    assert "leaf" in traced.trace.explain([L(3) * 2])


def test_batch_of_any_size():
    def make():
        m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        return m, (R(3, 4),), [m]
    check(make, dynamic=True)
