"""Comparing a call with eager: values, types, layout, and which tensors share memory."""
import torch
from torch.utils import _pytree as pytree


class Mismatch(AssertionError):
    pass


def tensors_of(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def strides(x):
    return [s for s, n in zip(x.stride(), x.shape) if n > 1] if x.numel() else []


def compare(eager, got, what, tolerance=2e-5):
    if eager.dtype != got.dtype:
        raise Mismatch(f"{what}: dtype {eager.dtype} -> {got.dtype}")
    if eager.shape != got.shape:
        raise Mismatch(f"{what}: shape {tuple(eager.shape)} -> {tuple(got.shape)}")
    if (eager.is_conj(), eager.is_neg()) != (got.is_conj(), got.is_neg()):
        raise Mismatch(f"{what}: lazy conjugation {eager.is_conj()} -> {got.is_conj()}, negation {eager.is_neg()} -> {got.is_neg()}")
    if strides(eager) != strides(got):
        raise Mismatch(f"{what}: strides {eager.stride()} -> {got.stride()} of {tuple(eager.shape)}")
    torch.testing.assert_close(got.detach(), eager.detach(), rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{what}: {m}")


def storages(tensors):
    """Which tensors share memory, as the index of the first that does."""
    first = {}
    return [first.setdefault(x.untyped_storage()._cdata, i) for i, x in enumerate(tensors)]
