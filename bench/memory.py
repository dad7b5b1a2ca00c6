"""Peak memory of a training step: eager, braze at several activation memory budgets, and torch.compile when asked.

usage: memory.py [--against torch.compile] [CASE...]      CASE: a model of demo_models.py; default bert gpt2

Each figure is from a fresh process: the high-water mark of resident memory over steps 3 to 5, above what is resident
before the step (parameters, their gradients and all loaded code).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import demo_models
import torch

BUDGETS = (1.0, 0.5, 0.0)


def status(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def reset_high_water_mark():
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def measure(backend, case):
    torch.manual_seed(0)
    model, args, forward = demo_models.MODELS[case]()
    model.train()
    if backend == "torch.compile":
        forward = torch.compile(forward)
    elif backend != "eager":
        import braze
        forward = braze.compile(forward, options={"activation_memory_budget": float(backend)})

    def step():
        forward(*args).pow(2).mean().backward()

    with torch.enable_grad():
        for _ in range(2):
            step()
        reset_high_water_mark()
        before = status("VmRSS")
        for _ in range(3):
            step()
    print(json.dumps({"before": before, "peak": status("VmHWM") - before}))


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
