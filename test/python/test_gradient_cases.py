"""Gradients that single operators got wrong once."""
import pytest
import torch
import torch.nn.functional as F

import braze

CASES = {
    "zeros without memory": (lambda x: torch.sgn(x), (3,)),
    "negative divisor": (lambda x: F.avg_pool2d(x, 2, ceil_mode=False, divisor_override=-2), (1, 1, 4, 4)),
    "strides over a part of a storage": (lambda x: torch.as_strided(x, (2, 2), (1, 2)), (20,)),
    "strides and an offset": (lambda x: torch.as_strided(x, (2, 2), (1, 2), 3) * 2, (20,)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("leaf", [True, False])
def test_gradients(name, leaf):
    braze.reset()
    f, sizes = CASES[name]
    torch.manual_seed(0)
    data = torch.randn(sizes)
    results = []
    for g in (f, braze.compile(f, fullgraph=True)):
        whole = data.clone().requires_grad_(not leaf)
        part = whole[5:15] if sizes == (20,) else whole
        x = part.requires_grad_() if leaf else part * 1 if part is whole else part
        out = g(x)
        out.square().sum().backward()
        results.append((out, (x if leaf else whole).grad))
    for e, g in zip(*results, strict=True):
        torch.testing.assert_close(g, e)
