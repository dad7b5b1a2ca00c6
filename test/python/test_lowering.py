"""Loop bodies compute what ATen computes: calls on special values, all kernel dtypes and several layouts are lowered,
evaluated element by element (loop/evaluate.h, in the program test_loop) and compared with eager."""
import os
import struct
import subprocess

import pytest
import tensor_ir
import torch

import braze

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES = [*FLOATS, *INTS, torch.bool]
INF, NAN = float("inf"), float("nan")
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, INF, -INF, NAN, 1e-3, -7.25, 20.5, 100.0, -100.0, 6.0,
         -6.0, 1.5, -1.5, 7.0]
WHOLE = [0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100, 127, -128, 5]

UNARY = """neg abs sign sgn floor ceil trunc round sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan
    asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid bitwise_not isnan isinf signbit logical_not isposinf
    isneginf frac relu nan_to_num logit deg2rad rad2deg hardtanh hardswish hardsigmoid leaky_relu elu silu mish softplus
    hardshrink softshrink log_sigmoid_forward sum prod mean amax amin max min argmax argmin any all clone""".split()
BINARY = """add sub rsub mul div floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot copysign bitwise_and
    bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift eq ne lt le gt ge logical_and logical_or logical_xor pow
    logaddexp logaddexp2 xlogy special_xlog1py heaviside""".split()
GRADIENTS = """silu_backward tanh_backward sigmoid_backward hardsigmoid_backward hardswish_backward
    mish_backward""".split()
# No kernel: eager refuses them, or they stay ATen calls.
CALLS = {("heaviside", torch.bool), ("clamp", torch.bool), ("pow", torch.bool)}


def special(dtype):
    if dtype == torch.bool:
        return torch.tensor([False, True, True, False])
    if dtype == torch.uint8:
        return torch.tensor([0, 1, 2, 3, 7, 100, 200, 255], dtype=dtype)
    return torch.tensor(REALS if dtype.is_floating_point else WHOLE, dtype=dtype)


def image(dtype):
    values = torch.arange(2 * 3 * 7 * 9).remainder(23).reshape(2, 3, 7, 9).to(dtype)
    return [values, values.to(memory_format=torch.channels_last), values[:, :, ::2, 1:]]


class Cases:
    def __init__(self):
        self.graphs = []

    def add(self, op, *args, **kwargs):
        """One call, if eager takes it."""
        packet = op if isinstance(op, torch._ops.OpOverload) else None
        if packet is None:
            found = []
            with Catch(found), torch.no_grad():
                try:
                    op(*args, **kwargs)
                except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
                    return
            if len(found) != 1:
                return
            packet, args, kwargs = found[0]
        self.graphs.append(tensor_ir.graph_of_call(packet, args, kwargs))

    def write(self, file):
        with open(file, "wb") as out:
            for text, inputs, results in self.graphs:
                data = text.encode()
                out.write(struct.pack("<q", len(data)) + data)
                for tensors in (inputs, results):
                    out.write(struct.pack("<q", len(tensors)) + b"".join(map(packed, tensors)))


class Catch(torch.utils._python_dispatch.TorchDispatchMode):
    """Collects the calls that reach ATen: which overload was meant, with which arguments."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        if all(t.dtype in tensor_ir.DTYPES and not t.dtype.is_complex for t in tensor_ir.tensors_in([*args, result])):
            self.calls.append((op, args, kwargs or {}))
        return result


def packed(tensor):
    name = tensor_ir.DTYPES[tensor.dtype].encode()
    wide = tensor.detach().to(torch.float64 if tensor.dtype.is_floating_point else torch.int64).contiguous()
    return struct.pack(f"<q{len(name)}sq{tensor.dim()}q", len(name), name, tensor.dim(), *tensor.shape) + \
        wide.numpy().tobytes()


def run(cases, tmp_path):
    assert len(cases.graphs) > 10
    file = tmp_path / "cases"
    cases.write(file)
    program = tensor_ir.BUILD / "test" / "test_loop"
    result = subprocess.run([program, "-tc=lowering agrees with ATen"], capture_output=True, text=True,
                            env={**os.environ, "BRAZE_LOWERING_CASES": str(file)})
    assert result.returncode == 0, result.stdout[-6000:]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pointwise(dtype, tmp_path):
    cases = Cases()
    x = special(dtype)
    left, right = x.repeat_interleave(len(x)), x.repeat(len(x))
    for name in UNARY:
        cases.add(getattr(aten, name), x)
    for name in BINARY:
        op = getattr(aten, name)
        if (name, dtype) in CALLS:
            continue
        divides = name in ("div", "floor_divide", "remainder", "fmod") and not dtype.is_floating_point
        kept = right != 0 if divides else slice(None)
        cases.add(op, left[kept], right[kept])
        cases.add(op, left[kept], right[kept], alpha=3)
        for number in (2, -3, 0.5, -0.75, 0.3):
            cases.add(op, x, number)
            if not divides:
                cases.add(op, number, x)
        for other in DTYPES:
            y = special(other)[1:4]
            if (name, other) in CALLS or (divides and bool((y == 0).any())):
                continue
            cases.add(op, x[:, None], y)
            cases.add(op, x, y[-1])
    for mode in ("floor", "trunc") if dtype != torch.bool else ():
        cases.add(aten.div.Tensor_mode, left[right != 0], right[right != 0], rounding_mode=mode)
    run(cases, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_and_choices(dtype, tmp_path):
    cases = Cases()
    x = special(dtype)
    for exponent in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.5):
        if dtype != torch.bool:
            cases.add(aten.pow, x, exponent)
    for low, high in ((-1, 2), (None, 1.5), (0.3, None), (2, -1)):
        if dtype != torch.bool:
            cases.add(aten.clamp, x, low, high)
    for other in DTYPES:
        if not (dtype.is_floating_point and not other.is_floating_point):   # what does not fit is undefined
            cases.add(aten._to_copy, x, dtype=other)
            cases.add(aten.copy, torch.zeros(len(x), dtype=other), x)
            cases.add(aten.where, x != x[0], x, special(other)[:1])
        if other != torch.bool:
            cases.add(aten.cumsum, x[None, :8].abs().clamp(max=3) if dtype != torch.bool else x[None], 1, dtype=other)
            cases.add(aten.cat, [x[:3], special(other)[:2]])
    for value in (1, 2, -3, 0.3):
        cases.add(aten.addcmul, x, x.flip(0), x, value=value)
        cases.add(aten.addcdiv, x, x.flip(0), x, value=value)
        cases.add(aten.lerp, x, x.flip(0), value)
        cases.add(aten.masked_fill, x, x != x[0], value)
        cases.add(aten.threshold, x, 0.5, value)
    cases.add(aten.elu, x, 1.3, 0.7, 0.9)
    cases.add(aten.softplus, x, 2.0, 3.0)
    cases.add(aten.special_entr, x)
    cases.add(aten.sinc, x[torch.isfinite(x)])
    for decimals in (0, 1, -1):
        cases.add(aten.round, x, decimals=decimals)
    if dtype != torch.bool:
        cases.add(aten.addr, x[:4, None] * x[:5], x[:4], x[:5], beta=2, alpha=3)
    cases.add(aten.hardtanh, x, -2, 3)
    cases.add(aten._prelu_kernel, x, x.flip(0))
    for approximate in ("none", "tanh"):   # ATen's own gelu is not a number at infinity
        cases.add(aten.gelu, x[torch.isfinite(x)], approximate=approximate)
        cases.add(aten.gelu_backward, x[torch.isfinite(x)], x[torch.isfinite(x)].flip(0), approximate=approximate)
    y = x[torch.isfinite(x)]   # ATen's vector and scalar code differ on NaN
    grad = y.flip(0)
    for name in GRADIENTS:
        cases.add(getattr(aten, name), grad, y)
    if dtype != torch.float16:   # ATen's f16 kernel rounds after each step
        cases.add(aten.elu_backward, grad, 1.3, 0.7, 0.9, False, y)
        cases.add(aten.elu_backward, grad, 1.3, 0.7, 0.9, True, y)
    cases.add(aten.softplus_backward, grad, y, 2.0, 3.0)
    cases.add(aten.hardshrink_backward, grad, y, 0.7)
    cases.add(aten.softshrink_backward, grad, y, 0.7)
    cases.add(aten.logit_backward, grad, y, 0.1)
    cases.add(aten.logit_backward, grad, y)
    cases.add(aten._prelu_kernel_backward, grad, y, y)
    cases.add(aten.threshold_backward, grad, y, 0.5)
    cases.add(aten.hardtanh_backward, grad, y, -1.5, 2.0)
    cases.add(aten.leaky_relu_backward, grad, y, 0.2, False)
    cases.add(aten.log_sigmoid_backward, grad, y, (-y.abs()).exp() if dtype.is_floating_point else y)
    for bounds in ((0, 5), (5, 0, -1), (1, 9, 2), (0.0, 2.0, 0.3)):
        cases.add(aten.arange, *bounds, dtype=dtype)
    cases.add(aten.eye, 3, dtype=dtype)
    cases.add(aten.full, [2, 3], 2.5, dtype=dtype)
    run(cases, tmp_path)


def backward(cases, picture, kernel, stride=(), padding=(0, 0), dilation=(1, 1), ceil_mode=False):
    if picture.dtype in (torch.float32, torch.float64):
        _, indices = aten.max_pool2d_with_indices(picture, kernel, stride, padding, dilation, ceil_mode)
        gradient = torch.arange(indices.numel(), dtype=picture.dtype).reshape(indices.shape)
        cases.add(aten.max_pool2d_with_indices_backward, gradient, picture, kernel, stride, padding, dilation, ceil_mode,
                  indices)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_and_windows(dtype, tmp_path):
    cases = Cases()
    x = special(dtype)
    table = x.repeat(len(x), 1)
    for op in (aten.max, aten.min):
        cases.add(op, table, 1)
        cases.add(op, table.t(), 0, True)
    for op in (aten.argmax, aten.argmin):
        cases.add(op, table, 1, True)
        cases.add(op, table, None)
    for picture in image(dtype):
        cases.add(aten.sum, picture, [1, 3], True)
        cases.add(aten.mean, picture, [2, 3])
        cases.add(aten.amax, picture, [0, 2])
        cases.add(aten.any, picture, [1, 2])
        cases.add(aten.all, picture, 1)
        cases.add(aten.cumsum, picture, 1)
        if dtype != torch.bool:
            for window in (([3, 3], [2, 2], [1, 1]), ([2, 3],), ([3, 2], [2, 1], [1, 1], [2, 1]),
                           ([3, 3], [2, 2], [1, 1], [1, 1], True)):
                cases.add(aten.max_pool2d_with_indices, picture, *window)
                backward(cases, picture, *window)
        if dtype in (torch.float32, torch.float64):   # ATen keeps weights of 16-bit images in 16 bits
            cases.add(aten.upsample_linear1d, picture[0], [20], False)
            cases.add(aten.upsample_trilinear3d, picture[None], [5, 9, 4], True)
            sizes = list(picture.shape)
            for size, align, *scales in (([14, 18], False, None, None), ([5, 11], True, None, None), ([3 * sizes[2], sizes[3]], False, 3.0, 1.0),
                                         ([1, 1], True, None, None), ([16, 4], False, None, None)):
                gradient = aten.upsample_bilinear2d(picture, size, align, *scales).flip(-1).contiguous()
                cases.add(aten.upsample_bilinear2d_backward, gradient, size, sizes, align, *scales)
            cases.add(aten.upsample_linear1d_backward, aten.upsample_linear1d(picture[0], [20], False), [20], sizes[1:], False)
        if dtype.is_floating_point:
            cases.add(aten.avg_pool3d, picture, [2, 3, 3], [1, 2, 2], [1, 1, 1], True, False)
            cases.add(aten.max_pool3d_with_indices, picture, [2, 3, 3], [1, 2, 2], [1, 1, 1])
            for window in (([3, 3], [2, 2], [1, 1]), ([2, 3],), ([3, 2], [2, 1], [1, 1], True),
                           ([3, 3], [2, 2], [1, 1], True, False), ([3, 3], [2, 2], [1, 1], False, False, 5)):
                cases.add(aten.avg_pool2d, picture, *window)
                if dtype in (torch.float32, torch.float64):   # ATen adds 16-bit gradients in 16 bits
                    kernel, stride, padding, *rest = window if len(window) > 2 else (*window, window[0], [0, 0])
                    gradient = aten.avg_pool2d(picture, *window).flip(-1).contiguous()
                    cases.add(aten.avg_pool2d_backward, gradient, picture, kernel, stride, padding, *(rest + [False, True, None][len(rest):]))
            for size, align, *scales in (([14, 18], False), ([5, 11], True), ([14, 18], False, 2.0, 2.0), ([1, 1], True)):
                cases.add(aten.upsample_bilinear2d, picture, size, align, *scales)
            for size in ([14, 18], [10, 5], [17, 9]):
                cases.add(aten.upsample_nearest2d, picture, size)
                cases.add(aten._upsample_nearest_exact2d, picture, size)
    run(cases, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_moves_and_indices(dtype, tmp_path):
    cases = Cases()
    few, grid = torch.tensor([0, 2, 1, -1]), torch.tensor([[1], [0]])
    for x in image(dtype):
        height = x.shape[2]
        one = torch.ones((), dtype=dtype)
        cases.add(aten.constant_pad_nd, x, [1, 2, 0, 3], 1)
        cases.add(aten.constant_pad_nd, x, [-1, 2, 1, -2, 1, 0], 1)
        cases.add(aten.flip, x, [1, 3])
        cases.add(aten.roll, x, [1, -2], [0, 2])
        cases.add(aten.roll, x, [5])
        cases.add(aten.repeat, x, [2, 1, 3, 1])
        cases.add(aten.repeat, x, [2, 1, 1, 2, 2])
        cases.add(aten.triu, x, 1)
        cases.add(aten.tril, x, -1)
        cases.add(aten.slice_scatter, x, x[:, 1:3], 1, 1, 3)
        cases.add(aten.slice_scatter, x, x[:, :, 1::2], 2, 1, 9999, 2)
        cases.add(aten.slice_scatter, x, x[:, :, -3:-1], 2, -3, -1)
        cases.add(aten.select_scatter, x, x[:, 1], 1, -1)
        cases.add(aten.diagonal_scatter, x, x.diagonal(1, 2, 3), 1, 2, 3)
        cases.add(aten.diag_embed, x[0, 0], 1, 0, 2)
        for indices in ([None, few], [None, few, grid], [grid, None, few], [None, None, None, few]):
            low = [None if i is None else i.clamp(max=1) for i in indices]
            cases.add(aten.index, x, low)
            for accumulate in (False, True):
                if not accumulate:   # ATen's order of repeated places is its own: use each once
                    low = [None if i is None else i[:1] for i in low]
                cases.add(aten.index_put, x, low, one, accumulate)
        cases.add(aten.index_put, x, [x > 0], one)
        cases.add(aten.index_put, x, [None, x[0, :, :, 0] > 0], one)
        index = torch.arange(2 * 3 * 4 * 9).remainder(height).reshape(2, 3, 4, 9)[:, :, :, : x.shape[3]]
        cases.add(aten.gather, x, 2, index)
        cases.add(aten.scatter, x, 2, index[:, :, :3], 1)
        cases.add(aten.scatter_add, x, 2, index[:, :, :3], x)
        if dtype != torch.bool:
            for reduce in ("sum", "prod", "amax", "amin"):
                cases.add(aten.scatter_reduce, x, 2, index[:, :, :3].clone(), x, reduce)
            cases.add(aten.scatter, x, 2, index[:, :, :3], x, reduce="multiply")
        if dtype.is_floating_point:
            cases.add(aten.embedding_dense_backward, x[0, 0], few.abs().repeat(9)[:height], 4, 1, False)
        cases.add(aten.index_add, x, 2, torch.tensor([0, 1, 1]), x[:, :, :3])
        cases.add(aten.index_copy, x, 2, torch.tensor([0, 2, 1]), x[:, :, :3])
        cases.add(aten.index_fill, x, 2, torch.tensor([0, -1]), 1)
        cases.add(aten.embedding, x[0, 0], few.abs())
        cases.add(aten.take, x, torch.tensor([[0, -1], [30, 17]]))
        cases.add(aten.im2col, x, [2, 3], [1, 2], [1, 0], [2, 1])
        cases.add(aten.index_select, x, 2, torch.tensor([1, 0, 0]))
        cases.add(aten.cat, [x, x[:, :2], x[:, :0]], 1)
        cases.add(aten.stack, [x, x], 2)
        cases.add(aten.unfold, x, 2, 2, 1)
        cases.add(aten.diagonal, x, -1, 3, 2)
        cases.add(aten.expand, x[:, :1], [4, 2, 5, -1, -1])
        cases.add(aten.split_with_sizes, x, [1, 2], 1)
        cases.add(aten.unbind, x, 1)
    full = image(dtype)[0]
    for x in (full, full.transpose(1, 2), full.permute(3, 1, 0, 2)[::2]):
        for size in ([-1], [2, -1, 3], [7, -1], [1, 3, -1, 1, 2]):
            cases.add(aten.view, x, size)
            cases.add(aten.reshape, x, size)
    run(cases, tmp_path)


def test_text_does_not_double_with_each_step():
    """Each step reads the one before at two more places of the row: in one kernel its text would stand there thrice."""
    def steps(x):
        for step in (1, 2, 4, 8, 16, 1, 2, 4, 8, 16):
            y = x.tanh() * 0.5 + 0.5
            x = y / y.sum(-1, keepdim=True) + y.roll(step, -1) * y.flip(-1)
        return x

    braze.reset()
    x = torch.randn(64, 32)
    torch.testing.assert_close(braze.compile(steps, fullgraph=True)(x), steps(x))
    assert braze.compile_report()[-1]["kernels"] > 1
