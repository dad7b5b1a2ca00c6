"""Attention against libtorch's CPU kernel: batch 2, 12 heads of 64. Least time of interleaved calls, and their ratio.

usage: attention.py [--threads 2] [--dtypes float32,bfloat16,float16]
"""
import argparse

import braze
import torch
import torch.nn.functional as F
from backward_ops import least_ms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    for dtype in (getattr(torch, name) for name in args.dtypes.split(",")):
        for causal in (False, True):
            for length in (128, 256, 512, 1024):
                torch.manual_seed(0)
                q, k, v = (torch.randn(2, 12, length, 64, dtype=dtype) for _ in range(3))

                def f(q, k, v, causal=causal):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

                compiled = braze.compile(f)
                theirs, ours = least_ms([lambda f=f, x=(q, k, v): f(*x), lambda c=compiled, x=(q, k, v): c(*x)], 20)
                print(f"{str(dtype)[6:]:9} {'causal' if causal else 'plain':6} {length:5}: libtorch {theirs:8.3f} ms, "
                      f"braze {ours:8.3f} ms: {theirs / ours:5.2f} times as fast", flush=True)


if __name__ == "__main__":
    main()
