"""Peak memory of a training step: eager, braze at several activation memory budgets, and torch.compile when asked.

usage: memory.py [--against torch.compile] [CASE...]      CASE: a model of demo_models.py; default bert gpt2

Each figure is from a fresh process: the high-water mark of what the CPU allocators (libtorch's and braze's) hold during
the third step, above what they hold before it. Gradients are part of it.
"""
import argparse
import json
import os
import subprocess
import sys

import demo_models
import torch

BUDGETS = (1.0, 0.5, 0.0)
BATCHES = 4      # of the demo: so large that activations outweigh gradients


def high_water_mark(step):
    """Bytes, from the profiler's record of every allocation."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def measure(backend, case):
    torch.manual_seed(0)
    model, args, forward = demo_models.MODELS[case]()
    args = tuple(arg.repeat(BATCHES, *[1] * (arg.dim() - 1)) for arg in args)
    model.train()
    if backend == "torch.compile":
        forward = torch.compile(forward)
    elif backend != "eager":
        import braze
        forward = braze.compile(forward, options={"activation_memory_budget": float(backend)})

    def step():
        model.zero_grad(set_to_none=True)
        forward(*args).pow(2).mean().backward()

    for _ in range(2):
        step()
    model.zero_grad(set_to_none=True)
    print(json.dumps({"peak": high_water_mark(step) / 2**20}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["bert", "gpt2"])
    parser.add_argument("--against", choices=["torch.compile"])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.measure, options.cases[0])
    backends = ["eager", *map(str, BUDGETS), *([options.against] if options.against else [])]
    print(f"{'MB above the parameters':24}" + "".join(f"{b:>16}" for b in backends))
    for case in options.cases:
        row = f"{case:24}"
        for backend in backends:
            run = subprocess.run([sys.executable, os.path.abspath(__file__), "--measure", backend, case], capture_output=True, text=True, check=False)
            row += f"{json.loads(run.stdout)['peak']:16.0f}" if run.returncode == 0 else f"{'failed':>16}"
        print(row, flush=True)
    return None


if __name__ == "__main__":
    main()
