"""Trains real models on the CPU, eager against compiled, and prints what it cost and what it gave.

usage: demo_training.py [--against torch.compile] [CASE ...]      CASE: mlp, bert, resnet50

For each case: how far the losses of all steps are from eager's, milliseconds per step, the seconds of the first step,
and the peak of what the CPU allocators hold during a step, above parameters and optimizer state.
"""
import copy
import os
import statistics
import sys
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch  # noqa: E402
from demo_models import MODELS  # noqa: E402
from demo_table import show_table  # noqa: E402
from memory import high_water_mark  # noqa: E402
from torch import nn  # noqa: E402

import braze  # noqa: E402


def no_dropout(model):
    """Training mode, but the same numbers for all."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def mlp_case():
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.Linear(128, 16))
    x, y = torch.randn(256, 64), torch.randn(256, 16)

    def step_of(model, wrap):
        optimizer = torch.optim.Adam(model.parameters())

        def step():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return wrap(step)     # the whole step
    return model, step_of, 30


def model_case(name, output, steps):
    def make():
        model, args, _ = MODELS[name]()

        def step_of(model, wrap):
            forward, optimizer = wrap(model), torch.optim.AdamW(model.parameters(), lr=1e-4)

            def step():
                optimizer.zero_grad()
                loss = output(forward(*args)).pow(2).mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            return step
        return model, step_of, steps
    return make


CASES = {
    "mlp": mlp_case,
    "bert": model_case("bert", lambda out: out.last_hidden_state, 5),
    "resnet50": model_case("resnet50", lambda out: out.logits, 5),
}


def measure(name, against):
    torch.manual_seed(0)
    braze.reset()
    model, step_of, n_steps = CASES[name]()
    no_dropout(model)
    wraps = {"eager": lambda f: f, "braze": braze.compile}
    if against:
        wraps[against] = torch.compile
    steps = {who: step_of(copy.deepcopy(model), wrap) for who, wrap in wraps.items()}
    first, losses, times = {}, {who: [] for who in steps}, {who: [] for who in steps}
    for i in range(n_steps):
        for who, step in steps.items():
            start = time.perf_counter()
            losses[who].append(step().item())
            seconds = time.perf_counter() - start
            if i == 0:
                first[who] = seconds
            else:
                times[who].append(seconds * 1e3)
    error = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(losses["braze"], losses["eager"], strict=True))
    ms = {who: statistics.median(row) for who, row in times.items()}
    counters = braze.counters()
    row = [name, f"{error:.1e}", f"{ms['eager']:.2f}", f"{ms['braze']:.2f}", f"{ms['eager'] / ms['braze']:.2f}", f"{first['braze']:.2f}"]
    row += [str(counters["graphs"]), str(sum(counters["skipped"].values()))]
    row += [f"{high_water_mark(steps[who]) / 2**20:.1f}" for who in ("eager", "braze")]
    if against:
        row += [f"{ms[against]:.2f}", f"{first[against]:.2f}", f"{high_water_mark(steps[against]) / 2**20:.1f}"]
    return row


def main():
    return show_table(__doc__, CASES,
                      ["training", "loss error", "eager ms", "braze ms", "faster", "first step s", "graphs", "skipped", "eager MB", "braze MB"],
                      ["torch.compile ms", "its first step s", "its MB"], measure)


if __name__ == "__main__":
    sys.exit(main())
