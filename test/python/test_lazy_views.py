"""Lazily conjugated and negated tensors as results."""
import pytest
import torch

import braze
from same_as_eager import compare

CASES = {
    "of an input": lambda x: x.conj(),
    "of a fresh tensor": lambda x: (x * 2).conj(),
    "and the tensor": lambda x: ((y := x * 2).conj(), y),
    "a part": lambda x: (x * 2).conj()[1:],
    "twice": lambda x: x.conj().conj() + 1,
    "adjoint": lambda x: x.mH,
    "transform": lambda x: torch.fft.ifft(x.real),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_results(name, grad):
    braze.reset()
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.complex64)
    f = CASES[name]
    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        a, b = (x.clone().requires_grad_(grad) for _ in range(2))
        eager, got = f(a), compiled(b)
        for e, g in zip(*(r if isinstance(r, tuple) else (r,) for r in (eager, got)), strict=True):
            compare(e, g, name)
        if grad:
            for r in (eager, got):
                sum(torch.view_as_real(t.resolve_conj()).square().sum() if t.is_complex() else t.square().sum()
                    for t in (r if isinstance(r, tuple) else (r,))).backward()
            torch.testing.assert_close(b.grad, a.grad)
