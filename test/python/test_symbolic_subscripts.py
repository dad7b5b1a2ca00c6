"""Subscripts of tensors by ints that change between calls: one program for all of them."""
import braze
import pytest
import torch

VECTOR, MATRIX, CUBE, INDEX = torch.rand(20), torch.rand(6, 20), torch.rand(4, 20, 20), torch.tensor([0, 1])


def assigned(x, t):
    y = MATRIX.clone()
    y[:, t] = x[0]
    y[1, t:] = 2
    y[..., t] += 1
    y[t % 3, t] = 5
    y[t % 3, 1:4] = x[0] * 2
    return y


READS = {
    "plain": lambda x, t: x * VECTOR[t],
    "negative": lambda x, t: x * VECTOR[-t],
    "tuple": lambda x, t: x * VECTOR[(t,)],
    "new_dimension_behind": lambda x, t: VECTOR[t, None],
    "new_dimension_before": lambda x, t: CUBE[None, t % 4],
    "new_dimensions": lambda x, t: CUBE[:, None, t, None, 1:t],
    "ellipsis": lambda x, t: VECTOR[..., t] + CUBE[..., t, :],
    "later_dimension": lambda x, t: MATRIX[:, t],
    "with_slices": lambda x, t: CUBE[t % 4, t:, 1:t],
    "twice": lambda x, t: CUBE[:, t, t],
    "tensor_before": lambda x, t: CUBE[INDEX, t],
    "tensor_behind": lambda x, t: CUBE[t % 4, :, INDEX],
    "tensor_far": lambda x, t: CUBE[INDEX, :, t],
    "mask": lambda x, t: CUBE[torch.ones(4, 20, dtype=torch.bool), t].sum(0),
    "boolean": lambda x, t: CUBE[True, t % 4],
    "size": lambda x, t: x.expand(t, 2)[x.expand(t, 2).shape[0] - 1] * 2,
    "method": lambda x, t: VECTOR.__getitem__(t) * x,
    "assigned": assigned,
}


@pytest.mark.parametrize("name", READS)
def test_one_program_for_all_ints(name):
    f = READS[name]
    compiled = braze.compile(f)
    before = braze.compile_count()
    for t in range(2, 12):
        x = torch.ones(2) * t
        got, expected = compiled(x, t), f(x, t)
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()
    assert braze.compile_count() - before <= 3


def test_errors_are_eagers():
    f = lambda t: VECTOR[t] * 2
    compiled = braze.compile(f)
    for t in (2, 3, 4, 19, 20, 25, -20, -21, 5, 0, 1):
        outcomes = []
        for g in (f, compiled):
            try:
                outcomes.append(g(t).item())
            except IndexError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_gradients_and_views():
    x, w = torch.rand(20, requires_grad=True), torch.rand(20, requires_grad=True)
    f = lambda x, t: x[t] * x[-t]
    compiled = braze.compile(f)
    with torch.no_grad():
        w.copy_(x)
    for t in range(2, 8):
        f(x, t).backward()
        compiled(w, t).backward()
        torch.testing.assert_close(w.grad, x.grad)
    view = braze.compile(lambda x, t: x[t:, None][t])
    for t in range(2, 6):
        assert view(VECTOR, t).data_ptr() == VECTOR[t:, None][t].data_ptr()


def test_the_remainder_of_an_int_is_guarded():
    f = lambda x, t: x * [1, 2][t % 2]
    compiled = braze.compile(f)
    before = braze.compile_count()
    x = torch.ones(2)
    for t in range(2, 12):
        torch.testing.assert_close(compiled(x, t), f(x, t))
    assert braze.compile_count() - before <= 3
