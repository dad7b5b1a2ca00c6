"""Programs with assert statements, which pytest rewrites in test files."""
import torch


def asserts(x):
    assert x.min() > -100, f"too small: {x.min()}"
    return x.relu() + torch.rand(3)


def asserts_silently(x):
    assert (x < 5).all()
    return x + 1
