"""Views, in-place writes and aliasing: the traced graph must do to inputs and outputs what eager does."""
import pytest
import torch

from trace_driver import Refused, check, trace
from alias_cases import CASES, R


@pytest.mark.parametrize("name", CASES)
def test_same_as_eager(name):
    check(CASES[name])


REFUSED = {
    "shape_growth": (lambda x, y: x.add_(y), lambda: (R(3), R(2, 3))),
    "lossy_in_place": (lambda x: x.add_(1.5), lambda: (torch.arange(3),)),
    "lossy_out": (lambda x, b: torch.add(x, 1.5, out=b), lambda: (R(3), torch.arange(3))),
    "write_expanded": (lambda x: x.expand(3, 4).add_(1), lambda: (R(3, 1),)),
    "repeated_in_list": (lambda x: (torch._foreach_add_([x, x], 1.0), x * 1)[1], lambda: (R(3),)),
    "item": (lambda x: x * x.sum().item(), lambda: (R(3),)),
    "branch": (lambda x: x if x.sum() > 0 else -x, lambda: (R(3),)),
    "mask_index_used": (lambda x: x[x > 0] * 2, lambda: (R(3),)),
    "size_of_nonzero": (lambda x: x * x.nonzero().shape[0], lambda: (R(3),)),
    "input_data_exchanged": (lambda x, y: (setattr(x, "data", y * 2), x + 1)[1], lambda: (R(3), R(3))),
    "input_set": (lambda x, y: (x.set_(y), x + 1)[1], lambda: (R(3), R(3))),
    "input_resized": (lambda x: (x.resize_(2), x + 1)[1], lambda: (R(3),)),
    "input_transposed": (lambda x: (x.t_(), x + 1)[1], lambda: (R(2, 3),)),
    "other_type_view_of_input": (lambda x: x.view(torch.int32), lambda: (R(3),)),
    "conjugate": (lambda x: torch.view_as_complex(x).conj(), lambda: (R(3, 2),)),
    "device": (lambda x: x + torch.ones(3, device="cuda"), lambda: (R(3),)),
    "sparse": (lambda x: torch.sparse.mm(x, x), lambda: (R(2, 2).relu().to_sparse(),)),
    "requires_grad_of_input": (lambda x: (x.requires_grad_(), x.detach() + 1)[1], lambda: (R(3),)),
    "quantized": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(), lambda: (R(3),)),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]).to_padded_tensor(0.0), lambda: (R(3),)),
    "shape_error": (lambda x, y: x @ y, lambda: (R(2, 3), R(2, 3))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    fn, args = REFUSED[name]
    args = args()
    kept = [x.clone() if not x.is_sparse else x for x in args]
    with pytest.raises(Refused):
        trace(fn, args)
    for x, old in zip(args, kept):
        assert x.is_sparse or torch.equal(x.detach(), old.detach())
    # Nothing of torch's state is left changed.
    assert type(torch.ones(2) + 1) is torch.Tensor and torch.ones(2).tolist() == [1.0, 1.0]
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_traced_tensor_outlives_its_trace():
    escaped = []
    traced = trace(lambda x: (escaped.append(x * 2), x + 1)[1], (R(3),))
    assert traced.run() is not None
    with pytest.raises(RuntimeError, match="outside its trace"):
        escaped[0] + 1


def test_batch_norm_updates_its_statistics():
    def make():
        m = torch.nn.BatchNorm1d(4).train()
        return m, (R(8, 4),), [m]
    traced = check(make)
    assert traced.info["mutations"] == 3      # running mean, running variance, the batch counter
    with torch.inference_mode():
        assert check(make).info["mutations"] == 3
        check(lambda: (lambda x, m, v: torch.nn.functional.instance_norm(x, m, v, use_input_stats=True),
                       (R(2, 3, 5), torch.zeros(3), torch.ones(3))))


def test_one_hot_checks_its_classes():
    traced = check(lambda: (lambda i: torch.nn.functional.one_hot(i, 5), (torch.tensor([[0, 4], [2, 2]]),)))
    for bad in (5, -1):
        with pytest.raises(RuntimeError, match="Class values must be"):
            traced.run([torch.tensor([[0, bad], [2, 2]])])


def test_linear_algebra_checks_its_results():
    traced = check(lambda: (torch.linalg.inv, (torch.eye(3) * 2,)))
    with pytest.raises(RuntimeError, match="singular"):
        traced.run([torch.zeros(3, 3)])


@torch.library.custom_op("braze_test::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * factor)


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


@torch.library.custom_op("braze_test::bump", mutates_args={"x"})
def bump(x: torch.Tensor) -> None:
    x.add_(1)


def test_custom_operators():
    traced = check(lambda: (lambda x: scaled(x + 1, 2.0) * 3, (R(3),)))
    assert "braze_test.scaled" in traced.text
    with pytest.raises(Refused):
        trace(lambda x: (bump(x), x * 1)[1], (R(3),))
