"""Matrix products against MKL (or ATen's own choice) and oneDNN, plain and with a packed weight: x[M, K] w[N, K]^T + b.
Least time of interleaved calls; the ratio is that of the fastest rival.

usage: matmul.py [--threads 2] [--dtypes float32,bfloat16] [-k MxNxK]
"""
import argparse
import sys

import braze
import torch
import torch.nn.functional as F
from backward_ops import least_ms

REGULAR = [(m, 3072, 768) for m in (1, 8, 32, 128, 512, 1024)]
ODD = [(1, 1000, 2048), (7, 77, 513), (17, 300, 100), (33, 1000, 64), (50, 768, 3072), (100, 100, 100), (129, 65, 1025),
       (197, 384, 384), (250, 50, 4096), (1000, 333, 77)]


def rivals(x, w, b):
    yield "ATen", lambda: torch.addmm(b, x, w.t())
    linear = torch.ops.mkldnn._linear_pointwise
    try:
        linear(x, w, b, "none", [], "")
        yield "oneDNN", lambda: linear(x, w, b, "none", [], "")
        packed = torch.ops.mkldnn._reorder_linear_weight(w, x.shape[0])
        linear(x, packed, b, "none", [], "")
        yield "packed", lambda: linear(x, packed, b, "none", [], "")
    except (RuntimeError, NotImplementedError) as error:
        print(f"no rival: {str(error)[:200]}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("-k", default="")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    below = []
    for dtype in (getattr(torch, name) for name in args.dtypes.split(",")):
        for m, n, k in REGULAR + ODD:
            name = f"{m}x{n}x{k}"
            if args.k not in name:
                continue
            torch.manual_seed(0)
            x, w, b = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype), torch.randn(n, dtype=dtype)
            names, functions = zip(*rivals(x, w, b), strict=True)
            compiled = braze.compile(lambda x, w, b: F.linear(x, w, b))
            calls = max(40, min(2000, int(4e8 / (m * n * k))))
            *times, ours = least_ms([*functions, lambda: compiled(x, w, b)], calls)
            ratio = min(times) / ours
            below += [ratio] if ratio < 0.95 else []
            row = "  ".join(f"{label} {t:8.4f}" for label, t in zip(names, times, strict=True))
            print(f"{str(dtype)[6:]:9} {name:14} {row}  braze {ours:8.4f} ms  {2e-6 * m * n * k / ours:6.0f} GFLOP/s  x{ratio:5.2f}", flush=True)
    print(f"{len(below)} shapes below 0.95 of the fastest rival")


if __name__ == "__main__":
    main()
