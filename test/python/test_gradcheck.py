"""Numerical first and second derivatives of random smooth functions in double precision."""
import random

import pytest
import torch
import torch.nn.functional as F

import braze

UNARY = [torch.tanh, torch.sigmoid, torch.sin, F.gelu, F.silu, F.softplus, lambda x: x.square().sum(-1, keepdim=True) + x,
         lambda x: F.softmax(x, -1), lambda x: F.log_softmax(x, 0), lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x.T,
         lambda x: x.cumsum(0), lambda x: torch.logsumexp(x, -1, keepdim=True) - x, lambda x: (x * x + 1).rsqrt(),
         lambda x: (x.exp() + 1).log(), lambda x: x.roll(1, 0), lambda x: x[torch.tensor([0, 2, 1])] if x.shape[0] == 3 else x]
BINARY = [torch.add, torch.mul, torch.sub, lambda a, b: a / (b * b + 1), lambda a, b: torch.atan2(a, b * b + 1),
          lambda a, b: a @ b.T if a.shape == b.shape else a @ b, lambda a, b: torch.cat([a, b])[:a.shape[0]],
          lambda a, b: torch.lerp(a, b, 0.3), lambda a, b: torch.where(a > b, a * b, a + b)]


def random_function(seed):
    steps = random.Random(seed)
    plan = []
    for _ in range(steps.randint(3, 9)):
        if steps.random() < 0.5:
            plan.append((steps.choice(UNARY), steps.random(), None))
        else:
            plan.append((steps.choice(BINARY), steps.random(), steps.random()))

    def f(*values):
        values = list(values)
        for op, first, second in plan:
            a = values[int(first * len(values))]
            if second is None:
                values.append(op(a))
                continue
            fitting = [v for v in values if v.shape == a.shape]
            values.append(op(a, fitting[int(second * len(fitting))]))
        return values[-1], (values[-1] * values[-2].mean()).sum()
    return f


def check(seed):
    braze.reset()
    torch.manual_seed(seed)
    inputs = tuple(torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    f = random_function(seed)
    compiled = braze.compile(f, fullgraph=True)
    for a, b in zip(f(*inputs), compiled(*inputs), strict=True):
        torch.testing.assert_close(b, a)
    if not any(out.requires_grad for out in f(*inputs)):
        return
    assert torch.autograd.gradcheck(compiled, inputs)
    assert torch.autograd.gradgradcheck(compiled, inputs)


FORMS = {
    "mish": F.mish,
    "logit": lambda x: torch.logit(x.sigmoid() * 0.8 + 0.1),
    "logit with eps": lambda x: torch.logit(x.sigmoid(), 0.2),
    "group norm": lambda x: F.group_norm(x.view(2, 6, 1), 3, x.flatten()[:6], x.flatten()[6:]),
    "group norm without weights": lambda x: F.group_norm(x.view(2, 6, 1), 2),
}


@pytest.mark.parametrize("name", FORMS)
def test_second_derivatives_that_libtorch_writes_otherwise(name):
    braze.reset()
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(braze.compile(FORMS[name], fullgraph=True), (x,))


@pytest.mark.parametrize("seed", [*range(8), 98])
def test_derivatives(seed):
    check(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8, 200))
def test_more_derivatives(seed):
    check(seed)
