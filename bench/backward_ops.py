"""Backward kernels against ATen's own, one op a row: least time of interleaved calls, and their ratio.

usage: backward_ops.py [PATTERN] [THREADS]
"""
import sys
import time

import braze
import torch

aten = torch.ops.aten


def layer_norm(rows, columns, dtype=torch.float32):
    x, g = torch.randn(rows, columns, dtype=dtype), torch.randn(rows, columns, dtype=dtype)
    w, b = torch.randn(columns, dtype=dtype), torch.randn(columns, dtype=dtype)
    _, mean, rstd = aten.native_layer_norm(x, [columns], w, b, 1e-5)
    return aten.native_layer_norm_backward, (g, x, [columns], mean, rstd, w, b, [True, True, True])


def batch_norm(*sizes, channels_last=False):
    x, g = torch.randn(sizes), torch.randn(sizes)
    if channels_last:
        x, g = (t.to(memory_format=torch.channels_last) for t in (x, g))
    w = torch.randn(sizes[1])
    _, mean, rstd = aten.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5)
    return aten.native_batch_norm_backward, (g, x, w, None, None, mean, rstd, True, 1e-5, [True, True, True])


def group_norm(n, c, hw, groups):
    x, g, w = torch.randn(n, c, hw, hw), torch.randn(n, c, hw, hw), torch.randn(c)
    _, mean, rstd = aten.native_group_norm(x, w, w, n, c, hw * hw, groups, 1e-5)
    return aten.native_group_norm_backward, (g, x, mean, rstd, w, n, c, hw * hw, groups, [True, True, True])


def softmax(*sizes, op=aten._softmax_backward_data):
    y, g = torch.randn(sizes).softmax(-1), torch.randn(sizes)
    return op, (g, y, -1, torch.float32)


def gelu(*sizes):
    return aten.gelu_backward, (torch.randn(sizes), torch.randn(sizes))


def embedding(tokens, rows, columns):
    return aten.embedding_dense_backward, (torch.randn(tokens, columns), torch.randint(0, rows, (tokens,)), rows, -1, False)


def cross_entropy(rows, classes):
    x, target = torch.randn(rows, classes).log_softmax(1), torch.randint(0, classes, (rows,))
    return aten.nll_loss_backward, (torch.tensor(1.0), x, target, None, 1, -100, torch.tensor(float(rows)))


def max_pool(*sizes):
    x = torch.randn(sizes)
    y, i = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    return aten.max_pool2d_with_indices_backward, (torch.randn_like(y), x, [3, 3], [2, 2], [1, 1], [1, 1], False, i)


def column_sum(rows, columns):
    return aten.sum, (torch.randn(rows, columns), [0])


CASES = {
    "layer_norm 256x768": lambda: layer_norm(256, 768),
    "layer_norm 4096x768": lambda: layer_norm(4096, 768),
    "layer_norm 256x128": lambda: layer_norm(256, 128),
    "layer_norm bf16 256x768": lambda: layer_norm(256, 768, torch.bfloat16),
    "batch_norm 2x256x56x56": lambda: batch_norm(2, 256, 56, 56),
    "batch_norm channels_last": lambda: batch_norm(2, 256, 56, 56, channels_last=True),
    "batch_norm 2x2048x7x7": lambda: batch_norm(2, 2048, 7, 7),
    "group_norm 2x256x28x28/32": lambda: group_norm(2, 256, 28, 32),
    "softmax 24x128x128": lambda: softmax(24, 128, 128),
    "log_softmax 128x50257": lambda: softmax(128, 50257, op=aten._log_softmax_backward_data),
    "gelu 256x3072": lambda: gelu(256, 3072),
    "embedding 256 of 30522x768": lambda: embedding(256, 30522, 768),
    "cross_entropy 128x50257": lambda: cross_entropy(128, 50257),
    "max_pool 2x64x112x112": lambda: max_pool(2, 64, 112, 112),
    "column sum 256x768": lambda: column_sum(256, 768),
    "column sum 256x3072": lambda: column_sum(256, 3072),
    "column sum 8192x64": lambda: column_sum(8192, 64),
}


def least_ms(functions, calls=40):
    # With one thread the time of the process: other processes' work counts less.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = [float("inf")] * len(functions)
    for _ in range(calls):
        for i, function in enumerate(functions):
            start = clock()
            function()
            times[i] = min(times[i], clock() - start)
    return [1e3 * t for t in times]


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    if len(sys.argv) > 2:
        torch.set_num_threads(int(sys.argv[2]))
    for name, make in CASES.items():
        if pattern not in name:
            continue
        torch.manual_seed(0)
        op, args = make()
        compiled = braze.compile(lambda *tensors, op=op, args=args: op(*fill(args, tensors)))
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        want, got = op(*args), compiled(*tensors)
        wants, gots = (r if isinstance(r, tuple) else (r,) for r in (want, got))
        error = max((a - b).abs().max().item() for a, b in zip(wants, gots, strict=True))
        eager, ours = least_ms([lambda: op(*args), lambda: compiled(*tensors)])
        print(f"{name:<28} ATen {eager:8.3f} ms, braze {ours:8.3f} ms: {eager / ours:5.2f} times as fast, error {error:.1e}")


def fill(args, tensors):
    given = iter(tensors)
    return [next(given) if isinstance(a, torch.Tensor) else a for a in args]


if __name__ == "__main__":
    main()
