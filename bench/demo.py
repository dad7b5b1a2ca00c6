"""Compiles real models on the CPU and prints what it cost and what it gave.

usage: demo.py [--against torch.compile] [MODEL ...]

For each model: the largest error against eager, eager and compiled milliseconds per call, the seconds of the first
call, the number of graphs, and after how many calls compiling has paid. Times are medians of interleaved calls.
"""
import math
import os
import statistics
import sys
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch  # noqa: E402
from demo_models import MODELS, affine_chain  # noqa: E402
from demo_table import show_table  # noqa: E402

import braze  # noqa: E402


def interleaved_ms(functions, args, seconds=2.0):
    """Median milliseconds per call of each function, called in turn."""
    for f in functions:
        f(*args)
    times = [[] for _ in functions]
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[0]) < 5:
        for f, row in zip(functions, times, strict=True):
            t = time.perf_counter()
            f(*args)
            row.append((time.perf_counter() - t) * 1e3)
        if len(times[0]) >= 300:
            break
    return [statistics.median(row) for row in times]


def show_one_kernel():
    print("A function of eight operations, one of them dead and three without effect, becomes one kernel:\n")
    braze.set_logs("loop_ir,output_code")
    with torch.no_grad():
        braze.compile(affine_chain, fullgraph=True)(torch.randn(4, 32))
    braze.set_logs("")
    braze.reset()
    print(flush=True)


def measure(name, against):
    torch.manual_seed(0)
    _, args, f = MODELS[name]()
    braze.reset()
    with torch.no_grad():
        want = f(*args)
        compiled = braze.compile(f)
        t = time.perf_counter()
        got = compiled(*args)
        first = time.perf_counter() - t
        functions = [f, compiled]
        other_first = None
        if against:
            other = torch.compile(f)
            t = time.perf_counter()
            other(*args)
            other_first = time.perf_counter() - t
            functions.append(other)
        times = interleaved_ms(functions, args)
    counters = braze.counters()
    saved = (times[0] - times[1]) / 1e3
    pays = math.ceil((first - times[1] / 1e3) / saved) if saved > 0 else None
    row = [name, f"{(got - want).abs().max().item():.1e}", f"{times[0]:.3f}", f"{times[1]:.3f}",
           f"{times[0] / times[1]:.2f}", f"{first:.3f}", str(counters["graphs"]),
           str(sum(counters["skipped"].values())), "-" if pays is None else str(pays)]
    if against:
        row += [f"{times[2]:.3f}", f"{other_first:.2f}"]
    return row


def main():
    return show_table(__doc__, MODELS,
                      ["model", "error", "eager ms", "braze ms", "faster", "first call s", "graphs", "skipped", "pays after"],
                      ["torch.compile ms", "its first call s"], measure, before=show_one_kernel)


if __name__ == "__main__":
    sys.exit(main())
