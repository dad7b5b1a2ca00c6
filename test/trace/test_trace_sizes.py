"""Symbolic sizes: what the graph keeps symbolic, what it guards, and that the guards refuse what the graph can't do."""
import math

import pytest
import torch

from trace_driver import trace

R = torch.randn


def size_arithmetic(x):
    n = x.shape[0]
    return x.view(n // 2, 2, -1).sum(1) * n + (n + 1) % 3 - min(n, 100) + max(n, 2)


def loop_over_dims(x):
    total = x
    for d in range(x.dim()):
        total = total / x.size(d)
    return total


CASES = {
    "pointwise": (lambda x: x * 2 + x, True),
    "number_from_size": (lambda x: x + x.shape[0], True),
    "factory": (lambda x: torch.arange(x.shape[0]) + torch.zeros(x.shape[0]) + torch.full((x.shape[1], 1), 2.0), True),
    "slices": (lambda x: x[:, 1:] + x[:, :-1], True),
    "reshape": (lambda x: x.reshape(-1) * 2, True),
    "transposed": (lambda x: (x.t().contiguous(), x.t() + 1), True),
    "expand": (lambda x: x[None].expand(3, -1, -1) + 1, True),
    "cat": (lambda x: torch.cat([x, x, x * 2]), True),
    "matmul": (lambda x: x @ x.t(), True),
    "softmax": (lambda x: torch.softmax(x, -1).mean(0), True),
    "float_of_size": (lambda x: x / math.sqrt(x.shape[1]), False),
    "item_loop": (lambda x: torch.stack([r for r in x[: x.shape[0] // x.shape[0]]]), True),
    "arithmetic": (size_arithmetic, False),
    "divide_by_sizes": (loop_over_dims, False),
    "branch": (lambda x: x * 2 if x.shape[0] > 3 else x, False),
    "mutated": (lambda x: x.mul_(2).add(1), True),
    "view_of_input": (lambda x: x[1:], True),
}


@pytest.mark.parametrize("name", CASES)
def test_other_sizes(name):
    """Where the guards accept other sizes the graph is right for them; `general` says that they must."""
    fn, general = CASES[name]
    traced = trace(fn, (R(4, 6),), dynamic=True)
    assert traced.mismatches() == []
    accepted = 0
    for sizes in [(4, 6), (8, 6), (6, 10), (2, 2), (10, 3), (2, 7)]:
        x = R(sizes)
        if traced.trace.explain([x]):
            continue
        accepted += 1
        assert traced.mismatches([x.clone()]) == []
        a, b = x.clone(), x.clone()
        want, got = fn(a), traced.run([b])
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(a, b)
    assert accepted >= (4 if general else 1)


def test_branch_guards_the_predicate_only():
    traced = trace(CASES["branch"][0], (R(4, 6),), dynamic=True)
    assert traced.trace.explain([R(9, 7)]) == ""
    assert "s0" in traced.trace.explain([R(2, 6)])


def test_sizes_zero_and_one_are_static():
    traced = trace(lambda x: x * 2, (R(1, 6),), dynamic=True)
    assert traced.trace.explain([R(1, 9)]) == ""
    assert traced.trace.explain([R(2, 6)]) != ""
    assert traced.trace.explain([R(1, 1)]) != ""


def test_equal_sizes_that_must_be_equal():
    traced = trace(lambda x, y: x + y, (R(4, 6), R(4, 6)), dynamic=True)
    assert traced.trace.explain([R(5, 7), R(5, 7)]) == ""
    assert traced.trace.explain([R(5, 7), R(6, 7)]) != ""


def test_dense_layouts_keep_their_order():
    traced = trace(lambda x: x * 2, (R(4, 6).t(),), dynamic=True)
    assert traced.trace.explain([R(5, 7).t()]) == ""
    assert traced.trace.explain([R(7, 5)]) != ""
    got = traced.run([(x := R(5, 7).t())])
    assert got.stride() == (x * 2).stride()


def test_static_guards():
    x = R(4, 6)
    traced = trace(lambda t: t * 2, (x,))
    assert traced.trace.explain([R(4, 6)]) == ""
    for other, word in [(R(5, 6), "size"), (R(6, 4).t(), "stride"), (R(4, 6).double(), "dtype"),
                        (torch.nn.Parameter(R(4, 6)), "type"), (R(4, 6).requires_grad_(), "requires_grad")]:
        assert word in traced.trace.explain([other])


def test_memory_guards():
    traced = trace(lambda x, y: (x.add_(1), y * 2)[1], (R(4), R(4)))
    assert traced.trace.explain([R(4), R(4)]) == ""
    shared = R(6)
    assert "memory" in traced.trace.explain([shared[:4], shared[2:]])
    x = R(4)
    assert "memory" in traced.trace.explain([x, x])
    aliased = trace(lambda a, b: (a.add_(1), b * 2)[1], (shared[:4], shared[2:]))
    other = R(6)
    assert aliased.trace.explain([other[:4], other[2:]]) == ""
    assert aliased.trace.explain([other[:4], R(6)[2:]]) != ""
