"""Calls of ATen ops over layouts and dtypes, for test_type_rules.py. A case is (op, args, kwargs)."""

import itertools
import math
import random

import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16]
SOME = [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]
ALL = FLOATS + INTS + [torch.bool, torch.complex64, torch.complex128]


def make(shape, dtype=torch.float32):
    """Small positive numbers, valid for every op's domain and as indices into dimensions of size 2 and more."""
    n = 1
    for size in shape:
        n *= size
    return (torch.arange(n) % 2).reshape(shape).to(dtype)


def layouts(shape, dtype=torch.float32):
    """The same shape in each layout that its rank allows."""
    rank = len(shape)
    yield make(shape, dtype)
    if rank >= 1:
        yield make([*shape[:-1], shape[-1] * 2], dtype)[..., ::2]
        yield make([shape[0] + 2, *shape[1:]], dtype)[1:-1]
        yield make([1, *shape[1:]], dtype).expand(shape) if shape[0] > 0 else make(shape, dtype)
    if rank >= 2:
        yield make([*shape[:-2], shape[-1], shape[-2]], dtype).transpose(-1, -2)
        yield make(list(reversed(shape)), dtype).permute(*reversed(range(rank)))
        yield make([*shape[:-1], 1], dtype).expand(shape) if shape[-1] > 0 else make(shape, dtype)
    if rank == 3:
        yield make([shape[1], shape[0], shape[2]], dtype).transpose(0, 1)
    if rank == 4:
        yield make(shape, dtype).to(memory_format=torch.channels_last)
        yield make([shape[0], shape[1] * 2, *shape[2:]], dtype).to(memory_format=torch.channels_last)[:, ::2]
    if rank == 5:
        yield make(shape, dtype).to(memory_format=torch.channels_last_3d)


SHAPES = [(), (4,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (0, 3), (2, 0, 3), (1, 3), (3, 1), (2, 1, 4, 1), (1, 1, 1, 1)]


def unary(ops, dtypes=SOME, extra=()):
    for op in ops:
        for dtype in dtypes:
            for x in layouts((2, 3), dtype):
                yield op, (x, *extra), {}
        for shape in SHAPES:
            for x in layouts(shape):
                yield op, (x, *extra), {}


def binary(ops, dtypes=SOME):
    rng = random.Random(7)
    pairs = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 3), ()), ((), (2, 3)), ((2, 3, 4), (3, 1)), ((2, 1, 4), (3, 1)),
             ((), ()), ((4,), (1,)), ((0, 3), (1, 3)), ((2, 3, 4, 5), (1, 3, 1, 1)), ((2, 3, 4, 5), (2, 3, 4, 5)),
             ((2, 3), (4,)), ((2, 3, 4), (2, 3, 4)), ((1, 1), (1, 1)), ((2, 1, 4, 1), (2, 1, 4, 1))]
    for op in ops:
        for a, b in itertools.product(dtypes, dtypes):
            for sa, sb in [((2, 3), (2, 3)), ((2, 3), ()), ((), (3,)), ((), ())]:
                yield op, (make(sa, a), make(sb, b) + (0 if b == torch.bool else 1)), {}
            yield op, (make((3, 2), a).t(), make((2, 1), b).expand(2, 3)), {}
        for sa, sb in pairs:
            combos = list(itertools.product(layouts(sa), layouts(sb)))
            for x, y in rng.sample(combos, min(len(combos), 14)):
                yield op, (x, y), {}


def with_number(ops, dtypes=SOME, numbers=(2, 2.5, True, 1 + 2j)):
    for op in ops:
        for dtype in dtypes:
            for number in numbers:
                yield op, (make((2, 3), dtype), number), {}
                yield op, (make((), dtype), number), {}
        for x in layouts((2, 3, 4)):
            yield op, (x, 2), {}


def number_first(ops, dtypes=SOME):
    for op in ops:
        for dtype in dtypes:
            for number in (2, 2.5, True):
                yield op, (number, make((2, 3), dtype)), {}
        for x in layouts((2, 3, 4)):
            yield op, (2, x), {}


def pointwise():
    yield from unary([f"aten.{n}" for n in """neg sign sgn floor ceil trunc round frac bitwise_not relu hardswish
        hardsigmoid leaky_relu elu silu gelu mish softplus hardshrink softshrink nan_to_num hardtanh abs angle
        isnan isinf isposinf isneginf signbit logical_not""".split()], ALL)
    yield from unary([f"aten.{n}" for n in """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan
        asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv sigmoid lgamma digamma logit i0 sinc
        special_i0e special_i1 special_i1e special_entr special_ndtri special_log_ndtr special_erfcx
        special_bessel_j0 deg2rad rad2deg""".split()], ALL)
    yield from unary(["aten.round.decimals"], SOME)
    yield from unary(["aten.threshold"], SOME, (1, 2))
    yield from unary(["aten.clamp"], SOME, (0, 1))
    yield from unary(["aten.clamp"], SOME, (0.5, None))
    yield from unary(["aten.clamp"], SOME, (None, 2))
    yield from unary(["aten.clamp_min", "aten.clamp_max"], SOME, (1,))
    yield from unary(["aten.clamp_min", "aten.clamp_max"], SOME, (1.5,))
    yield from binary(["aten.clamp_min.Tensor", "aten.clamp_max.Tensor", "aten.clamp.Tensor"])
    yield from binary([f"aten.{n}" for n in """add.Tensor sub.Tensor mul.Tensor rsub.Tensor div.Tensor floor_divide
        remainder.Tensor fmod.Tensor pow.Tensor_Tensor maximum minimum fmax fmin bitwise_and.Tensor bitwise_or.Tensor
        bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor hypot nextafter logaddexp logaddexp2
        gcd lcm heaviside igamma igammac atan2 copysign.Tensor xlogy.Tensor special_xlog1py special_zeta eq.Tensor
        ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or logical_xor""".split()])
    yield from with_number([f"aten.{n}" for n in """add.Scalar sub.Scalar mul.Scalar div.Scalar rsub.Scalar
        remainder.Scalar fmod.Scalar floor_divide.Scalar pow.Tensor_Scalar bitwise_and.Scalar bitwise_or.Scalar
        bitwise_xor.Scalar eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar copysign.Scalar
        xlogy.Scalar_Other bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar""".split()])
    yield from number_first(["aten.pow.Scalar", "aten.remainder.Scalar_Tensor", "aten.xlogy.Scalar_Self",
                             "aten.bitwise_and.Scalar_Tensor"])
    for mode in (None, "floor", "trunc"):
        for op, args, _ in itertools.chain(binary(["aten.div.Tensor_mode"]), with_number(["aten.div.Scalar_mode"])):
            yield op, args, {"rounding_mode": mode}
    for dtype in SOME:
        for alpha in (2, 2.5, True):
            yield "aten.add.Tensor", (make((2, 3), dtype), make((2, 3), dtype)), {"alpha": alpha}
            yield "aten.sub.Tensor", (make((2, 3), dtype), make((2, 3), dtype)), {"alpha": alpha}
        for exponent in (-1, 0, 0.5, 2):
            yield "aten.pow.Tensor_Scalar", (make((2, 3), dtype), exponent), {}
    # Three operands.
    rng = random.Random(3)
    shapes = [((2, 3), (2, 3), (2, 3)), ((2, 3), (3,), (2, 1)), ((2, 3), (), ()), ((), (2, 3), (3,)),
              ((2, 3, 4, 5), (2, 3, 4, 5), (1, 3, 1, 1))]
    for a, b, c in shapes:
        combos = list(itertools.product(layouts(a), layouts(b), layouts(c)))
        for x, y, z in rng.sample(combos, min(40, len(combos))):
            for op in ("addcmul", "addcdiv", "lerp.Tensor"):
                yield f"aten.{op}", (x, y, z), {}
            yield "aten.lerp.Scalar", (x, y, 0.5), {}
            yield "aten.where.self", (x.bool(), y, z), {}
    for a, b in itertools.product(SOME, SOME):
        for sa, sb in [((2, 3), (2, 3)), ((2, 3), ()), ((), ())]:
            yield "aten.where.self", (make((2, 3)).bool(), make(sa, a), make(sb, b)), {}
            yield "aten.addcmul", (make((2, 3), a), make(sa, a), make(sb, b)), {}
            yield "aten.addcdiv", (make((2, 3), a), make(sa, a), make(sb, b) + (0 if b == torch.bool else 1)), {}
            yield "aten.lerp.Tensor", (make((2, 3), a), make(sa, a), make(sb, b)), {}
    for dtype in SOME:
        for x in layouts((2, 3), dtype):
            for mask in layouts((2, 3), torch.bool):
                yield "aten.masked_fill.Scalar", (x, mask, 1), {}
            yield "aten.masked_fill.Tensor", (x, make((3,), torch.bool), make((), dtype)), {}
            yield "aten.fill.Scalar", (x, 1), {}
            yield "aten.fill.Tensor", (x, make((), dtype)), {}
            yield "aten.copy", (x, make((3,), torch.int32)), {}
    for x in layouts((2, 3, 4)):
        for y in layouts((2, 3, 4)):
            yield "aten.copy", (x, y), {}
            yield "aten.complex", (x, y), {}
            yield "aten.polar", (x, y), {}
    for op in ("gelu_backward", "silu_backward", "tanh_backward", "sigmoid_backward", "hardswish_backward",
               "hardsigmoid_backward", "mish_backward", "logit_backward"):
        for a, b in [((2, 3), (2, 3)), ((2, 3, 4, 5), (2, 3, 4, 5))]:
            for x, y in itertools.product(layouts(a), layouts(b)):
                yield f"aten.{op}", (x, y), {}
        for dtype in SOME:
            yield f"aten.{op}", (make((2, 3), dtype), make((2, 3), dtype)), {}
    for x, y in itertools.product(layouts((2, 3, 4)), layouts((2, 3, 4))):
        yield "aten.native_dropout_backward", (x, y.bool(), 2.0), {}
        yield "aten.threshold_backward", (x, y, 0), {}
        yield "aten.hardtanh_backward", (x, y, -1, 1), {}
        yield "aten.leaky_relu_backward", (x, y, 0.1, False), {}
        yield "aten.elu_backward", (x, 1, 1, 1, False, y), {}
        yield "aten.softplus_backward", (x, y, 1, 20), {}
        yield "aten.softshrink_backward", (x, y, 0.5), {}
        yield "aten._prelu_kernel", (x, y), {}
        yield "aten._prelu_kernel_backward", (x, y, y), {}
    for x in layouts((2, 4, 3)):
        yield "aten.glu", (x, 1), {}
        yield "aten.log_sigmoid_forward", (x,), {}


def views():
    for dtype in (torch.float32, torch.int64):
        for x in layouts((2, 3, 4), dtype):
            for sizes in ([24], [6, 4], [2, 12], [-1], [2, -1, 2], [2, 3, 2, 2], [1, 24, 1], [5, 5], [2, 3, 4],
                          [-1, -1]):
                yield "aten.view", (x, sizes), {}
                yield "aten.reshape", (x, sizes), {}
                yield "aten._unsafe_view", (x, sizes), {}
    for shape in SHAPES:
        n = torch.Size(shape).numel()
        for x in layouts(shape):
            for sizes in ([n], [n, 1], [1, n], [*shape], [*reversed(shape)], [1, *shape], [*shape, 1], [-1]):
                yield "aten.view", (x, sizes), {}
                yield "aten.reshape", (x, sizes), {}
            for op in ("t", "squeeze", "alias", "detach", "lift_fresh"):
                yield f"aten.{op}", (x,), {}
            for d in (-4, -1, 0, 1, 2):
                yield "aten.unsqueeze", (x, d), {}
                yield "aten.squeeze.dim", (x, d), {}
                yield "aten.squeeze.dims", (x, [d]), {}
                yield "aten.unbind.int", (x, d), {}
                yield "aten.select.int", (x, d, 0), {}
                yield "aten.select.int", (x, d, -1), {}
                yield "aten.select.int", (x, d, 7), {}
                for e in (-1, 0, 1):
                    yield "aten.transpose.int", (x, d, e), {}
                for start, end, step in [(None, None, 1), (1, None, 1), (0, 2, 1), (-2, -1, 1), (1, 100, 2), (3, 1, 1),
                                         (0, 2**63 - 1, 1), (-100, 2, 1), (0, None, 0)]:
                    yield "aten.slice.Tensor", (x, d, start, end, step), {}
                for part in (1, 2, 5):
                    yield "aten.split.Tensor", (x, part, d), {}
                yield "aten.split_with_sizes", (x, [1, 1], d), {}
                yield "aten.split_with_sizes", (x, [1, 2], d), {}
                yield "aten.unfold", (x, d, 2, 1), {}
                yield "aten.unfold", (x, d, 1, 2), {}
            rank = len(shape)
            for order in ([*range(rank)], [*reversed(range(rank))], [*range(1, rank), 0], [-1] * rank):
                yield "aten.permute", (x, order), {}
            for sizes in ([*shape], [-1] * rank, [3, *shape], [2, 4, *shape],
                          [max(s, 2) if s == 1 else s for s in shape]):
                yield "aten.expand", (x, sizes), {}
            if rank >= 2:
                for offset in (-1, 0, 1, 5):
                    yield "aten.diagonal", (x, offset, 0, 1), {}
                    yield "aten.diagonal", (x, offset, -1, 0), {}
    base = make((40,))
    yield "aten.as_strided", (base, [2, 3], [3, 1]), {}
    yield "aten.as_strided", (base, [2, 3], [1, 4], 5), {}
    yield "aten.as_strided", (base[3:], [2, 3], [1, 4]), {}
    yield "aten._reshape_alias", (base, [5, 8], [8, 1]), {}
    for x in layouts((2, 3, 2)):
        yield "aten.view_as_complex", (x,), {}
        yield "aten.view.dtype", (x, torch.int32), {}
        yield "aten.view.dtype", (x, torch.float64), {}
        yield "aten.view.dtype", (x, torch.float16), {}
    for x in layouts((2, 3), torch.complex64):
        yield "aten.view_as_real", (x,), {}
    for x in layouts((4, 3, 5)):
        yield "aten.slice_scatter", (x, x[1:3].clone(), 0, 1, 3), {}
        yield "aten.select_scatter", (x, x[:, 1].clone(), 1, 1), {}
        yield "aten.diagonal_scatter", (x, torch.diagonal(x, 0, 0, 1).clone(), 0, 0, 1), {}
    yield "aten.slice_backward", (make((2, 3)), [4, 3], 0, 0, 2, 1), {}
    yield "aten.select_backward", (make((3,)), [4, 3], 0, 1), {}


def reductions():
    dims = [None, [0], [-1], [0, 1], [], [5], [0, 0]]
    for dtype in ALL:
        for shape in [(2, 3, 4), ()]:
            x = make(shape, dtype)
            for op in ("sum", "mean", "prod", "max", "min", "any", "all", "median", "nansum", "count_nonzero"):
                yield f"aten.{op}", (x,), {}
            for dim in dims:
                for keep in (False, True):
                    for op in ("sum.dim_IntList", "mean.dim", "amax", "amin", "any.dims", "all.dims", "logsumexp"):
                        if dim is None and op in ("amax", "amin", "logsumexp"):
                            continue
                        yield f"aten.{op}", (x, dim, keep), {}
                    yield "aten.var.correction", (x, dim), {"correction": 1, "keepdim": keep}
                    yield "aten.std.correction", (x, dim), {"correction": 0, "keepdim": keep}
                    yield "aten.var_mean.correction", (x, dim), {"correction": 1, "keepdim": keep}
                    yield "aten.linalg_vector_norm", (x, 2, dim, keep), {}
            for dim in (0, -1, 1, 5):
                for keep in (False, True):
                    for op in ("max.dim", "min.dim", "any.dim", "all.dim", "median.dim", "mode", "argmax", "argmin",
                               "prod.dim_int", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
                        tail = () if op.startswith(("cum", "logcum")) else (keep,)
                        yield f"aten.{op}", (x, dim, *tail), {}
                    yield "aten.aminmax", (x,), {"dim": dim, "keepdim": keep}
                yield "aten.sort", (x, dim), {}
                yield "aten.sort.stable", (x,), {"stable": True, "dim": dim}
                yield "aten.topk", (x, 1, dim), {}
                yield "aten.topk", (x, 9, dim), {}
                yield "aten.kthvalue", (x, 1, dim), {}
                yield "aten._softmax", (x, dim, False), {}
                yield "aten._log_softmax", (x, dim, False), {}
            yield "aten.argmax", (x,), {}
            yield "aten.argmax", (x, None, True), {}
            for out in (torch.float32, torch.float64, torch.int32):
                yield "aten.sum.dim_IntList", (x, [0], False), {"dtype": out}
                yield "aten.mean.dim", (x, [0], False), {"dtype": out}
                yield "aten.cumsum", (x, 0), {"dtype": out}
                yield "aten.prod", (x,), {"dtype": out}
    for shape in SHAPES:
        for x in layouts(shape):
            for op in ("sum", "mean", "max", "min", "prod", "any", "median", "aminmax", "argmax"):
                yield f"aten.{op}", (x,), {}
            for dim in ([0], [-1], [1]):
                for op in ("sum.dim_IntList", "mean.dim", "amax", "logsumexp"):
                    yield f"aten.{op}", (x, dim, False), {}
                    yield f"aten.{op}", (x, dim, True), {}
                yield "aten.var.correction", (x, dim), {}
                yield "aten.var_mean.correction", (x, dim), {"keepdim": True}
                yield "aten.linalg_vector_norm", (x, 1, dim), {}
                yield "aten.linalg_vector_norm", (x, float("inf"), dim), {}
                yield "aten.norm.ScalarOpt_dim", (x, 2, dim, True), {}
            yield "aten.norm.Scalar", (x, 2), {}
            for dim in (0, 1, -1):
                for op in ("max.dim", "argmax", "cumsum", "cummax", "sort", "logcumsumexp", "median.dim", "mode",
                           "any.dim"):
                    yield f"aten.{op}", (x, dim), {}
                yield "aten._softmax", (x, dim, False), {}
                yield "aten._safe_softmax", (x, dim), {}
                yield "aten.topk", (x, 1, dim), {}
                yield "aten.kthvalue", (x, 1, dim), {}
                yield "aten._softmax_backward_data", (x, x, dim, torch.float32), {}
    for x in layouts((3, 4)):
        yield "aten.trace", (x,), {}
        for reduction in (0, 1, 2):
            target = make((3,), torch.int64)
            yield "aten.nll_loss_forward", (x, target, None, reduction, -100), {}
            total = torch.tensor(3.0)
            grad = make((3,)) if reduction == 0 else make(())
            yield "aten.nll_loss_backward", (grad, x, target, None, reduction, -100, total), {}
            for y in layouts((3, 4)):
                for op in ("mse_loss", "smooth_l1_loss", "huber_loss"):
                    yield f"aten.{op}", (x, y, reduction), {}
                yield "aten.binary_cross_entropy", (x, y, None, reduction), {}
                yield "aten.binary_cross_entropy_with_logits", (x, y, None, None, reduction), {}
                yield "aten.mse_loss_backward", (make((3, 4)), x, y, reduction), {}
                yield "aten.binary_cross_entropy_backward", (make((3, 4)), x, y, None, reduction), {}
        yield "aten.mse_loss", (x, make((4,)), 0), {}


def factories():
    for dtype in (None, torch.float64, torch.int64, torch.bool):
        for size in ([], [2, 3], [0], [2, 3, 4, 5], [-1]):
            for op in ("zeros", "ones", "rand", "randn"):
                if op.startswith("rand") and dtype in (torch.int64, torch.bool):
                    continue
                yield f"aten.{op}", (size,), {"dtype": dtype}
            for value in (1, 2.5, True, 1j):
                yield "aten.full", (size, value), {"dtype": dtype}
            yield "aten.empty.memory_format", (size,), {"dtype": dtype}
            yield "aten.empty.memory_format", (size,), {"dtype": dtype, "memory_format": torch.channels_last}
            yield "aten.randint", (5, size), {"dtype": dtype} if dtype else {}
            yield "aten.randint.low", (1, 5, size), {}
        yield "aten.scalar_tensor", (2,), {"dtype": dtype}
        yield "aten.scalar_tensor", (2.5,), {"dtype": dtype}
        yield "aten.arange", (5,), {"dtype": dtype}
        yield "aten.arange", (5.5,), {"dtype": dtype}
        yield "aten.arange.start", (1, 5), {"dtype": dtype}
        yield "aten.arange.start_step", (1, 10, 3), {"dtype": dtype}
        yield "aten.arange.start_step", (1.0, 10, 3), {"dtype": dtype}
        yield "aten.arange.start_step", (10, 1, -2), {"dtype": dtype}
        yield "aten.arange.start_step", (0, 1, 0.1), {"dtype": dtype}
        yield "aten.arange.start_step", (0, 10, -1), {"dtype": dtype}
        yield "aten.linspace", (0, 1, 5), {"dtype": dtype} if dtype != torch.bool else {}
        yield "aten.eye", (3,), {"dtype": dtype}
        yield "aten.eye.m", (3, 4), {"dtype": dtype}
        for x in layouts((2, 3, 4, 5)):
            for op in ("empty_like", "zeros_like", "ones_like"):
                yield f"aten.{op}", (x,), {"dtype": dtype}
                for fmt in (torch.contiguous_format, torch.preserve_format, torch.channels_last):
                    yield f"aten.{op}", (x,), {"dtype": dtype, "memory_format": fmt}
            yield "aten.full_like", (x, 2), {"dtype": dtype}
            yield "aten.new_zeros", (x, [2, 2]), {"dtype": dtype}
            yield "aten.new_full", (x, [2, 2], 3), {"dtype": dtype}
            yield "aten.new_empty_strided", (x, [2, 2], [1, 2]), {"dtype": dtype}
            yield "aten._to_copy", (x,), {"dtype": dtype}
            yield "aten._to_copy", (x,), {"dtype": dtype, "memory_format": torch.contiguous_format}
    yield "aten.empty_strided", ([2, 3], [1, 2]), {}
    yield "aten.empty_permuted", ([2, 3, 4], [0, 2, 1]), {}
    yield "aten.randperm", (5,), {}
    for offset in (-2, 0, 1):
        yield "aten.tril_indices", (3, 4, offset), {}
        yield "aten.triu_indices", (4, 3, offset), {}
    for shape in SHAPES:
        for x in layouts(shape):
            yield "aten.clone", (x,), {}
            yield "aten.clone", (x,), {"memory_format": torch.contiguous_format}
            yield "aten.clone", (x,), {"memory_format": torch.channels_last}
            yield "aten._to_copy", (x,), {"dtype": torch.float64}
            yield "aten.rand_like", (x,), {}
            yield "aten.randint_like", (x, 5), {}
            for op in ("bernoulli", "uniform", "normal_functional", "exponential"):
                yield f"aten.{op}", (x,), {}
            yield "aten.bernoulli.p", (x, 0.5), {}
            yield "aten.native_dropout", (x, 0.5, True), {}


def indexing():
    rng = random.Random(5)
    i1, i2 = torch.tensor([0, 1, 1]), torch.tensor([[0], [1]])
    wide = i2.expand(2, 3)
    for shape in [(2, 3), (2, 3, 4), (2, 3, 4, 5)]:
        for x in layouts(shape):
            choices = [None, i1, i2, wide, torch.tensor(1), i1.int(), torch.tensor([], dtype=torch.int64), wide.t(),
                       i1[None]]
            for _ in range(30):
                indices = [rng.choice(choices) for _ in range(rng.randint(1, len(shape)))]
                yield "aten.index.Tensor", (x, indices), {}
                yield "aten._unsafe_index.Tensor", (x, indices), {}
            yield "aten.index_put", (x, [i1], make((), torch.float32)), {}
            for d in (0, 1, -1):
                yield "aten.index_select", (x, d, i1), {}
                two = torch.tensor([0, 1])
                yield "aten.index_add", (x, d, two, torch.index_select(x, d, two).clone()), {}
                yield "aten.index_copy", (x, d, two, torch.index_select(x, d, two).clone()), {}
                yield "aten.index_fill.int_Scalar", (x, d, i1, 1), {}
                yield "aten.gather", (x, d, make(shape, torch.int64)), {}
                yield "aten.scatter.value", (x, d, make(shape, torch.int64), 1), {}
                yield "aten.scatter.src", (x, d, make(shape, torch.int64), make(shape)), {}
                yield "aten.scatter_add", (x, d, make(shape, torch.int64), make(shape)), {}
                yield "aten.scatter_reduce.two", (x, d, make(shape, torch.int64), make(shape), "sum"), {}
            yield "aten.take", (x, wide), {}
            yield "aten.masked_scatter", (x, make(shape, torch.bool), make(shape)), {}
    yield "aten.gather", (make((2, 3)), 0, make((3, 3), torch.int64)), {}
    yield "aten.gather", (make((2, 3)), 0, make((1, 4), torch.int64)), {}
    yield "aten.gather", (make((2, 3)), 0, make((2,), torch.int64)), {}
    yield "aten.index.Tensor", (make((0, 3)), [i1]), {}
    for w in layouts((5, 3)):
        for i in layouts((2, 3), torch.int64):
            yield "aten.embedding", (w, i), {}
            yield "aten.embedding", (w, i.int()), {}
    bags = make((7,), torch.int64), torch.tensor([0, 2, 5])
    for op in ("aten._embedding_bag", "aten._embedding_bag_forward_only"):
        for w in layouts((5, 3)):
            for mode in range(3):
                for last in (False, True):
                    for padding in (-1, 2):
                        yield op, (w, *bags, False, mode, False, None, last, padding), {}
                yield op, (w, *(b.int() for b in bags), False, mode), {}
            yield op, (w, *bags, False, 0, False, make((7,), w.dtype)), {}
    for g in layouts((2, 3, 4)):
        yield "aten.embedding_dense_backward", (g, make((2, 3), torch.int64), 5, -1, False), {}
    for x in layouts((2, 3)):
        yield "aten.bucketize.Tensor", (x, torch.arange(4.0)), {}
        yield "aten.bucketize.Tensor", (x, torch.arange(4.0)), {"out_int32": True}
        yield "aten.searchsorted.Tensor", (torch.arange(4.0), x), {}


def joins():
    for shape in [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 6)]:
        for x, y in itertools.product(layouts(shape), layouts(shape)):
            for d in (0, 1, -1):
                yield "aten.cat", ([x, y], d), {}
            yield "aten.cat", ([x, make((0,))], 1), {}
            yield "aten.stack", ([x, y], 0), {}
            yield "aten.stack", ([x, y], -1), {}
        for x in layouts(shape):
            yield "aten.cat", ([x], 1), {}
            yield "aten.repeat", (x, [1] * len(shape)), {}
            yield "aten.repeat", (x, [2] * len(shape)), {}
            yield "aten.repeat", (x, [3] + [2] * len(shape)), {}
            for d in ([0], [1], [0, 1], [-1]):
                yield "aten.flip", (x, d), {}
                yield "aten.roll", (x, [1] * len(d), d), {}
            yield "aten.roll", (x, [1], []), {}
            yield "aten.tril", (x,), {}
            yield "aten.triu", (x, 1), {}
            for pads in ([1, 1], [0, 0], [-1, 0], [1, -1, 2, 0], [0, 0, -1, -1]):
                yield "aten.constant_pad_nd", (x, pads), {}
            yield "aten.diag_embed", (x,), {}
            yield "aten.diag_embed", (x, 1, 0, 2), {}
    for a, b in itertools.product(SOME, SOME):
        yield "aten.cat", ([make((2, 3), a), make((2, 3), b)], 0), {}
        yield "aten.stack", ([make((2, 3), a), make((2, 3), b)], 0), {}
    for shape, pads in [((2, 3, 4), [1, 1]), ((3, 4), [1, 2]), ((2, 3, 4), [5, 1])]:
        for x in layouts(shape):
            yield "aten.reflection_pad1d", (x, pads), {}
            yield "aten.replication_pad1d", (x, pads), {}
    for shape in [(2, 3, 4, 5), (3, 4, 5)]:
        for x in layouts(shape):
            yield "aten.reflection_pad2d", (x, [1, 2, 1, 0]), {}
            yield "aten.replication_pad2d", (x, [1, 2, 1, 0]), {}
    for x in layouts((2, 3, 4, 5, 6)):
        yield "aten.reflection_pad3d", (x, [1, 2, 1, 0, 1, 1]), {}
        yield "aten.replication_pad3d", (x, [1, 2, 1, 0, 1, 1]), {}
    for x in layouts((2, 8, 3, 5)):
        yield "aten.pixel_shuffle", (x, 2), {}
    for x in [*layouts((2, 3, 4, 6)), make((1, 1, 2, 2))[:, 1:].expand(1, 0, 2, 2)]:
        yield "aten.pixel_unshuffle", (x, 2), {}
        yield "aten.pixel_unshuffle", (x, 1), {}


def products():
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for x, y in itertools.product(layouts((2, 3), dtype), layouts((3, 4), dtype)):
            yield "aten.mm", (x, y), {}
            for b in ((4,), (2, 1), (2, 4), (), (1,), (3,)):
                yield "aten.addmm", (make(b, dtype), x, y), {}
        for x, y in itertools.product(layouts((5, 2, 3), dtype), layouts((5, 3, 4), dtype)):
            yield "aten.bmm", (x, y), {}
            yield "aten.baddbmm", (make((4,), dtype), x, y), {}
        for x, v in itertools.product(layouts((2, 3), dtype), layouts((3,), dtype)):
            yield "aten.mv", (x, v), {}
            yield "aten.addmv", (make((2,), dtype), x, v), {}
        yield "aten.dot", (make((3,), dtype), make((3,), dtype)), {}
        for s in layouts((2, 3), dtype):
            yield "aten.addr", (s, make((2,), dtype), make((3,), dtype)), {}
    yield "aten.mm", (make((2, 3)), make((4, 3))), {}
    yield "aten.mm", (make((0, 3)), make((3, 4))), {}
    yield "aten.mm", (make((2, 0)), make((0, 4))), {}
    yield "aten.mm", (make((2, 3)), make((3, 4), torch.float64)), {}
    yield "aten.bmm", (make((0, 2, 3)), make((0, 3, 4))), {}
    for x in [*layouts((2, 5, 3)), *layouts((5, 3)), make((3,)), *layouts((2, 2, 5, 3))]:
        for bias in (None, make((4,))):
            yield "aten.linear", (x, make((4, 3)), bias), {}
    for q, k in itertools.product(layouts((2, 3, 4, 8)), layouts((2, 3, 6, 8))):
        yield "aten._scaled_dot_product_flash_attention_for_cpu", (q, k, k), {}
    q = make((2, 3, 4, 8), torch.bfloat16)
    yield "aten._scaled_dot_product_flash_attention_for_cpu", (q, q, q, 0.0, True), {}
    yield "aten._scaled_dot_product_flash_attention_for_cpu", (q.double(), q.double(), q.double()), {}
    yield "aten._scaled_dot_product_flash_attention_for_cpu", (q, q, q), {"attn_mask": make((4, 4), torch.bfloat16)}


def convolutions():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for shape, weight in [((2, 4, 6, 7), (6, 4, 3, 3)), ((1, 4, 6, 7), (6, 4, 1, 1)), ((1, 4, 8, 8), (6, 4, 5, 5)),
                              ((2, 4, 6, 7), (6, 2, 3, 3)), ((2, 4, 6, 7), (4, 1, 3, 3)), ((2, 1, 6, 7), (6, 1, 3, 3)),
                              ((2, 4, 1, 1), (6, 4, 1, 1)), ((2, 4, 9), (6, 4, 3)), ((1, 4, 9), (6, 4, 1)),
                              ((2, 1, 9), (6, 1, 3)), ((2, 4, 5, 6, 7), (6, 4, 2, 2, 2)),
                              ((1, 4, 5, 6, 7), (6, 4, 3, 3, 3)),
                              ((1, 3, 32, 32), (8, 3, 4, 4))]:
            spatial = len(shape) - 2
            groups = shape[1] // weight[1]
            weights = [make(weight, dtype), *list(layouts(weight, dtype))[-2:]]
            for x, w in itertools.product(layouts(shape, dtype), weights):
                for bias in (None, make((weight[0],), dtype)):
                    for stride, padding in ((1, 0), (2, 1)):
                        yield ("aten.convolution", (x, w, bias, [stride] * spatial, [padding] * spatial, [1] * spatial,
                                                    False, [0] * spatial, groups), {})
        for shape, weight in [((2, 4, 6, 7), (4, 6, 3, 3)), ((2, 4, 9), (4, 6, 3)), ((2, 4, 5, 6, 7), (4, 6, 2, 2, 2))]:
            spatial = len(shape) - 2
            weights = [make(weight, dtype), *list(layouts(weight, dtype))[-2:]]
            for x, w in itertools.product(layouts(shape, dtype), weights):
                for stride, extra in ((1, 0), (2, 1)):
                    yield ("aten.convolution", (x, w, None, [stride] * spatial, [0] * spatial, [1] * spatial, True,
                                                [extra] * spatial, 1), {})
    x, w = make((2, 4, 6, 7)), make((6, 4, 3, 3))
    yield "aten.convolution", (x, w, None, [1, 1], [0, 0], [2, 2], False, [0, 0], 1), {}
    yield "aten.convolution", (x, make((6, 5, 3, 3)), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), {}
    yield "aten.convolution", (x, make((6, 4, 9, 9)), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), {}
    yield "aten.convolution", (x, w.double(), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), {}
    yield "aten.convolution", (x, w, None, [1], [0], [1], False, [0], 1), {}


def norms():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for x in layouts((2, 3, 4), dtype):
            for shape in ([4], [3, 4], [5]):
                weight = make(shape, dtype)
                yield "aten.native_layer_norm", (x, shape, weight, weight, 1e-5), {}
                yield "aten.native_layer_norm", (x, shape, None, None, 1e-5), {}
                yield "aten.native_layer_norm", (x, shape, weight.float(), weight.float(), 1e-5), {}
                yield "aten._fused_rms_norm", (x, shape, weight, 1e-5), {}
        for x in layouts((2, 6, 4, 5), dtype):
            for weight in (None, make((6,), dtype), make((6,), torch.float32)):
                yield "aten.native_group_norm", (x, weight, weight, 2, 6, 20, 3, 1e-5), {}
        for shape in ((2, 6), (2, 6, 4), (2, 6, 4, 5), (2, 6, 3, 4, 5), (2, 6, 1, 1)):
            for x in layouts(shape, dtype):
                for stats in (dtype, torch.float32):
                    w, m, v = make((6,), stats), make((6,), stats), make((6,), stats) + 1
                    for training in (False, True):
                        yield "aten.native_batch_norm", (x, w, w, m, v, training, 0.1, 1e-5), {}
                        yield "aten._native_batch_norm_legit_functional", (x, w, w, m, v, training, 0.1, 1e-5), {}
                        yield "aten.native_batch_norm", (x, None, None, m, v, training, 0.1, 1e-5), {}
                    yield "aten.native_batch_norm", (x, w, w, None, None, True, 0.1, 1e-5), {}
                    yield "aten._native_batch_norm_legit_no_training", (x, w, w, m, v, 0.1, 1e-5), {}
                    yield "aten._native_batch_norm_legit.no_stats", (x, w, w, True, 0.1, 1e-5), {}


def pools():
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for shape in ((2, 3, 8, 9), (3, 8, 9)):
            for x in layouts(shape, dtype):
                for ceil in (False, True):
                    yield "aten.max_pool2d_with_indices", (x, [3, 3], [2, 2], [1, 1], [1, 1], ceil), {}
                    yield "aten.max_pool2d_with_indices", (x, [2, 2], [], [0, 0], [2, 2], ceil), {}
                    yield "aten.avg_pool2d", (x, [3, 3], [2, 2], [1, 1], ceil), {}
                    yield "aten.avg_pool2d", (x, [2, 2], [], [0, 0], ceil, True, 3), {}
                    yield "aten.max_pool2d_with_indices", (x, [3], [2], [1], [1], ceil), {}
                    yield "aten.max_pool2d_with_indices", (x, [3, 3], [2, 2], [2, 2], [1, 1], ceil), {}
                    yield "aten.avg_pool2d", (x, [20, 20]), {}
                yield "aten._adaptive_avg_pool2d", (x, [3, 2]), {}
                yield "aten._adaptive_avg_pool2d", (x, [1, 1]), {}
                yield "aten.adaptive_max_pool2d", (x, [3, 2]), {}
        for shape in ((2, 3, 6, 7, 8), (3, 6, 7, 8)):
            for x in layouts(shape, dtype):
                yield "aten.max_pool3d_with_indices", (x, [2, 2, 2]), {}
                yield "aten.avg_pool3d", (x, [2, 2, 2]), {}
                yield "aten._adaptive_avg_pool3d", (x, [3, 2, 2]), {}
                yield "aten.adaptive_max_pool3d", (x, [3, 2, 2]), {}
        for x in layouts((2, 3, 4, 5), dtype):
            for op in ("upsample_nearest2d", "_upsample_nearest_exact2d"):
                yield f"aten.{op}", (x, [8, 10]), {}
            for op in ("upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa"):
                yield f"aten.{op}", (x, [8, 10], False), {}
            yield "aten.im2col", (x, [2, 2], [1, 1], [0, 0], [1, 1]), {}
            for grid in layouts((2, 6, 7, 2), dtype):
                yield "aten.grid_sampler_2d", (x, grid, 0, 0, False), {}
        for x in layouts((2, 3, 4), dtype):
            yield "aten.upsample_nearest1d", (x, [8]), {}
            yield "aten.upsample_linear1d", (x, [8], False), {}
        for x in layouts((2, 3, 4, 5, 6), dtype):
            yield "aten.upsample_nearest3d", (x, [8, 10, 12]), {}
            yield "aten.upsample_trilinear3d", (x, [8, 10, 12], False), {}
        for x in layouts((2, 12, 12), dtype):
            yield "aten.col2im", (x, [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]), {}
    for x, y in itertools.product(layouts((2, 3, 4)), layouts((2, 5, 4))):
        yield "aten._cdist_forward", (x, y, 2.0, None), {}


def derivatives():
    for dtype in (torch.float32, torch.bfloat16):
        for g, x in itertools.product(layouts((2, 3, 4), dtype), layouts((2, 3, 4), dtype)):
            for weight in (None, make((4,), dtype), make((4,))):
                stats = torch.float32 if weight is not None and weight.dtype != dtype else dtype
                mean = make((2, 3, 1), stats)
                yield ("aten.native_layer_norm_backward",
                       (g, x, [4], mean, mean + 1, weight, weight, [True, True, True]), {})
            yield ("aten.native_layer_norm_backward",
                   (g, x, [4], make((2, 3, 1), dtype), make((2, 3, 1), dtype), make((4,), dtype), None,
                    [False, True, False]), {})
        for shape in ((2, 6, 4, 5), (2, 6, 4), (2, 6)):
            for g, x in itertools.product(layouts(shape, dtype), layouts(shape, dtype)):
                stats = make((6,), dtype) + 1
                for train in (True, False):
                    for mask in ([True, True, True], [True, False, False], [False, True, True]):
                        yield ("aten.native_batch_norm_backward",
                               (g, x, stats, stats, stats, stats, stats, train, 1e-5, mask), {})
                        yield ("aten.native_batch_norm_backward",
                               (g, x, None, stats, stats, stats, stats, train, 1e-5, mask), {})
        for g, x in itertools.product(layouts((2, 6, 4, 5), dtype), layouts((2, 6, 4, 5), dtype)):
            for weight in (None, make((6,), dtype)):
                stats = make((2, 3), dtype)
                for mask in ([True, True, True], [True, False, False]):
                    yield "aten.native_group_norm_backward", (g, x, stats, stats, weight, 2, 6, 20, 3, mask), {}
        for q, g in itertools.product(layouts((2, 3, 4, 8), dtype), list(layouts((2, 3, 4, 8), dtype))[:3]):
            out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)
            yield "aten._scaled_dot_product_flash_attention_for_cpu_backward", (g, q, q, q, out, lse, 0.0, False), {}
        for shape, weight in [((2, 4, 6, 7), (6, 4, 3, 3)), ((1, 4, 6, 7), (6, 4, 1, 1)), ((2, 4, 9), (6, 4, 3)),
                              ((2, 1, 9), (6, 1, 3)), ((1, 4, 5, 6, 7), (6, 4, 2, 2, 2)),
                              ((2, 4, 5, 6, 7), (6, 4, 2, 2, 2))]:
            n = len(shape) - 2
            for x, w in itertools.product(layouts(shape, dtype), list(layouts(weight, dtype))[::3]):
                out = torch.ops.aten.convolution(x, w, None, [1] * n, [0] * n, [1] * n, False, [0] * n, 1)
                for g in (torch.ones_like(out), out.new_ones(()).expand(out.shape)):
                    for mask in ([True, True, True], [False, True, False], [True, False, False]):
                        yield ("aten.convolution_backward",
                               (g, x, w, [6], [1] * n, [0] * n, [1] * n, False, [0] * n, 1, mask), {})
    for x in layouts((2, 3, 8, 9)):
        y, i = torch.ops.aten.max_pool2d_with_indices(x, [2, 2])
        for g in layouts(tuple(y.shape)):
            yield "aten.max_pool2d_with_indices_backward", (g, x, [2, 2], [], [0, 0], [1, 1], False, i), {}
            yield "aten.avg_pool2d_backward", (g, x, [2, 2], [2, 2], [0, 0], False, True, None), {}
            yield "aten._adaptive_avg_pool2d_backward", (g, x), {}
            for op in ("upsample_nearest2d_backward", "upsample_bilinear2d_backward",
                       "_upsample_nearest_exact2d_backward"):
                tail = () if "nearest" in op else (False,)
                yield f"aten.{op}", (g, [4, 4], [2, 3, 8, 9], *tail), {}
    for x in layouts((2, 3, 4, 6, 8)):
        y, i = torch.ops.aten.max_pool3d_with_indices(x, [2, 2, 2])
        for g in layouts(tuple(y.shape)):
            yield "aten.max_pool3d_with_indices_backward", (g, x, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, i), {}
            yield "aten.avg_pool3d_backward", (g, x, [2] * 3, [2] * 3, [0] * 3, False, True, None), {}
            yield "aten._adaptive_avg_pool3d_backward", (g, x), {}
            yield "aten._upsample_nearest_exact3d_backward", (g, [2, 3, 4], [2, 3, 4, 6, 8]), {}
            yield "aten.upsample_nearest3d_backward", (g, [2, 3, 4], [2, 3, 4, 6, 8]), {}
            yield "aten.upsample_trilinear3d_backward", (g, [2, 3, 4], [2, 3, 4, 6, 8], False), {}
    for g in layouts((2, 3, 6)):
        yield "aten._upsample_nearest_exact1d_backward", (g, [6], [2, 3, 4]), {}
        yield "aten.upsample_nearest1d_backward", (g, [6], [2, 3, 4]), {}
        yield "aten.upsample_linear1d_backward", (g, [6], [2, 3, 4], False), {}
        for x in layouts((2, 3, 4)):
            yield "aten.reflection_pad1d_backward", (g, x, [1, 1]), {}
            yield "aten.replication_pad1d_backward", (g, x, [1, 1]), {}
    for shape, size in [((2, 3, 4, 5), (2, 3, 5, 8)), ((3, 4, 5), (3, 5, 8))]:
        for g, x in itertools.product(layouts(size), layouts(shape)):
            yield "aten.reflection_pad2d_backward", (g, x, [1, 2, 1, 0]), {}
            yield "aten.replication_pad2d_backward", (g, x, [1, 2, 1, 0]), {}
    for g, x in itertools.product(layouts((2, 3, 6, 6, 9)), layouts((2, 3, 4, 5, 6))):
        yield "aten.reflection_pad3d_backward", (g, x, [1, 2, 1, 0, 1, 1]), {}
        yield "aten.replication_pad3d_backward", (g, x, [1, 2, 1, 0, 1, 1]), {}
    for x, grid in itertools.product(layouts((2, 3, 4, 5)), layouts((2, 6, 7, 2))):
        for mask in ([True, True], [False, True]):
            yield "aten.grid_sampler_2d_backward", (make((2, 3, 6, 7)), x, grid, 0, 0, False, mask), {}
    for g, x in itertools.product(layouts((2, 2, 3)), layouts((2, 4, 3))):
        yield "aten.glu_backward", (g, x, 1), {}
    for g, x in itertools.product(layouts((2, 3)), layouts((2, 3))):
        for op in ("smooth_l1_loss_backward", "huber_loss_backward"):
            for reduction in (0, 1):
                yield f"aten.{op}", (g if reduction == 0 else make(()), x, make((2, 3)), reduction, 1.0), {}
        yield "aten.hardshrink_backward", (g, x, 0.5), {}
        yield "aten.log_sigmoid_backward", (g, x, make((2, 3))), {}
    for x in layouts((2, 3, 4, 5)):
        target, total = make((2, 4, 5), torch.int64), torch.tensor(3.0)
        for reduction in (0, 1):
            yield "aten.nll_loss2d_forward", (x, target, None, reduction, -100), {}
            yield ("aten.nll_loss2d_backward",
                   (make((2, 4, 5)) if reduction == 0 else make(()), x, target, None, reduction, -100, total), {})
    for g in layouts((3, 4)):
        yield "aten.diagonal_backward", (make((3,)), [3, 4], 0, 0, 1), {}
        yield "aten.unfold_backward", (make((3, 2, 3)), [3, 4], 1, 3, 1), {}
        yield "aten.slice_backward", (g, [5, 4], 0, 1, 4, 1), {}
        yield "aten.select_backward", (g, [3, 2, 4], 1, 1), {}


def lists():
    """Ops over lists of tensors, each of its own shape and layout."""
    unary = ("abs", "exp", "neg", "sqrt", "rsqrt", "reciprocal", "sign", "sigmoid", "round", "log1p", "max", "clone")
    for dtype in SOME:
        for k, (a, b) in enumerate(zip(layouts((2, 3), dtype), layouts((2, 3, 4)), strict=False)):
            for op in unary:
                yield f"aten._foreach_{op}", ([a, b],), {}
            other = [make((2, 3), SOME[k % len(SOME)]), make((4,))]
            for op in ("add", "sub", "mul", "div", "maximum", "clamp_min", "pow"):
                for number in (2, 0.5, True):
                    yield f"aten._foreach_{op}.Scalar", ([a, b], number), {}
                yield f"aten._foreach_{op}.ScalarList", ([a, b], [2, 0.5]), {}
                yield f"aten._foreach_{op}.List", ([a, b], other), {}
                yield f"aten._foreach_{op}.List", ([b, a], other), {}
            for op in ("add", "mul", "div"):
                yield f"aten._foreach_{op}.Tensor", ([a, b], make(())), {}
            for op in ("addcmul", "addcdiv"):
                yield f"aten._foreach_{op}.Scalar", ([b, a], [b, a], [b + 1, a]), {"value": 0.5}
                yield f"aten._foreach_{op}.ScalarList", ([b, a], [b, a], [b + 1, a], [0.5, 2]), {}
            yield "aten._foreach_lerp.Scalar", ([b, b], [b, b + 1], 0.5), {}
            yield "aten._foreach_lerp.List", ([b, b], [b, b + 1], [b, make((4,))]), {}
            yield "aten._foreach_pow.ScalarAndTensor", (2.0, [a, b]), {}
            yield "aten._foreach_norm.Scalar", ([a, b], 2), {}
            yield "aten._foreach_norm.Scalar", ([b, b], math.inf, torch.float64), {}
            yield "aten._foreach_copy", ([a, b], other), {}
    yield "aten._foreach_add.List", ([make((2,)), make((3,))], [make((2,))]), {}
    for a, b in zip(layouts((2, 3, 4)), layouts((2, 3, 4, 5)), strict=False):
        steps = [torch.tensor(3.0), torch.tensor(3.0)]
        moments = [a.clone(), b.clone()]
        rates = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}
        for op in ("_fused_adam", "_fused_adamw"):
            for amsgrad in (True, False):
                yield (f"aten.{op}", ([a, b], [a, b], moments, moments, moments if amsgrad else [], steps),
                       rates | {"amsgrad": amsgrad})
        yield ("aten._fused_sgd", ([a, b], [a, b], moments),
               {"weight_decay": 0.1, "momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": False,
                "maximize": False, "is_first_step": False})


FAMILIES = {f.__name__: f for f in
            (pointwise, views, reductions, factories, indexing, joins, products, convolutions, norms, pools,
             derivatives, lists)}
