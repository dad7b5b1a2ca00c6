"""Patterns that one or a few kernels compute, against eager and torch.compile: median of interleaved calls. Each result is
checked against a float64 run.

usage: patterns.py [--threads 2] [--dtype float32] [-k PATTERN] [--compilers eager,inductor,braze]
"""
import argparse
import statistics
import sys
import time

import braze
import torch
import torch.nn.functional as F

PATTERNS = {}
SLACK = {"float32": 1e-6, "bfloat16": 1e-3, "float16": 2e-4}


def pattern(make):
    PATTERNS[make.__name__] = make
    return make


def numbers(*shape):
    return torch.randn(*shape, dtype=DTYPE)


# Pointwise chains.
@pattern
def tanh_gate():
    return lambda x, y, z: torch.tanh(x) * torch.sigmoid(y) + (1 - torch.sigmoid(y)) * z, (numbers(1500, 900), numbers(1500, 900), numbers(1500, 900))


@pattern
def film_leaky():
    return (lambda x, scale, shift: F.leaky_relu(x * (1 + scale[:, None]) + shift[:, None], 0.1),
            (numbers(32, 196, 384), numbers(32, 384), numbers(32, 384)))


@pattern
def clamp_where():
    return lambda x, y: torch.where(x > y, x.clamp(-1, 1), y * 0.1).square(), (numbers(1300, 1111), numbers(1300, 1111))


@pattern
def polar():
    return lambda x, y: (torch.sqrt(x * x + y * y + 1e-6), torch.atan2(y, x)), (numbers(700, 1024), numbers(700, 1024))


@pattern
def erf_log():
    return lambda x: 0.5 * torch.log1p(x.abs()) * (1 + torch.erf(x)), (numbers(1024, 1536),)


@pattern
def channels_bias_swish():
    return lambda x, b: F.hardswish(x + b[:, None, None]), (numbers(8, 96, 56, 56), numbers(96))


# Reductions.
@pattern
def row_norms():
    return lambda x: torch.linalg.vector_norm(x, dim=-1), (numbers(6000, 640),)


@pattern
def middle_mean():
    return lambda x: x.mean(1), (numbers(64, 197, 384),)


@pattern
def column_variance():
    return lambda x: x.var(0), (numbers(3000, 1000),)


@pattern
def pool_all():
    return lambda x: F.adaptive_avg_pool2d(F.relu(x), 1), (numbers(32, 256, 28, 28),)


@pattern
def largest_of_two():
    return lambda x, y: (x + y).amax(-1), (numbers(5000, 513), numbers(5000, 513))


@pattern
def cosine_rows():
    return lambda x, y: F.cosine_similarity(x, y, -1), (numbers(4000, 384), numbers(4000, 384))


# Norms.
@pattern
def pre_norm_small_rows():
    return lambda x, w, b: F.layer_norm(x, (96,), w, b), (numbers(20000, 96), numbers(96), numbers(96))


@pattern
def norm_scale_shift():
    return (lambda x, s, t: F.layer_norm(x, (768,)) * (1 + s[:, None]) + t[:, None],
            (numbers(8, 256, 768), numbers(8, 768), numbers(8, 768)))


@pattern
def rms_norm_heads():
    return lambda x, w: F.rms_norm(x, (64,), w), (numbers(4, 512, 12, 64), numbers(64))


@pattern
def instance_norm_relu():
    return lambda x: F.relu(F.instance_norm(x)), (numbers(8, 64, 64, 64),)


@pattern
def unit_rows():
    return lambda x: F.normalize(x, dim=-1) * 8, (numbers(5000, 256),)


# Softmaxes.
@pattern
def log_softmax_long():
    return lambda x: torch.log_softmax(x * 0.7, -1), (numbers(300, 12000),)


@pattern
def biased_softmax():
    return lambda x, b: torch.softmax(x * 0.125 + b, -1), (numbers(4, 8, 196, 196), numbers(8, 196, 196))


@pattern
def softmax_columns():
    return lambda x: torch.softmax(x, 1), (numbers(16, 21, 96, 96),)


# Gathers and moves.
@pattern
def embedding_sum():
    return (lambda i, j, a, b: F.embedding(i, a) + F.embedding(j, b),
            (torch.randint(0, 20000, (16, 256)), torch.randint(0, 512, (16, 256)), numbers(20000, 384), numbers(512, 384)))


@pattern
def heads_apart():
    return lambda x: x.view(4, 384, 3, 12, 64).permute(2, 0, 3, 1, 4) * 0.5, (numbers(4, 384, 2304),)


@pattern
def cat_gate():
    return lambda a, b: torch.cat((a * 2, b.tanh()), -1).sigmoid(), (numbers(3000, 300), numbers(3000, 200))


@pattern
def shifted_window():
    return (lambda x: torch.roll(x, (-3, -3), (1, 2)).view(8, 8, 7, 8, 7, 96).transpose(2, 3) + 1,
            (numbers(8, 56, 56, 96),))


@pattern
def pad_difference():
    return lambda x: F.pad(x[:, 1:] - x[:, :-1], (1, 0)), (numbers(3000, 800),)


# Windows.
@pattern
def average_pool():
    return lambda x: F.avg_pool2d(F.silu(x), 2), (numbers(8, 64, 96, 96),)


@pattern
def nearest_add():
    return lambda x, y: F.interpolate(x, scale_factor=2.0) + y, (numbers(4, 64, 48, 48), numbers(4, 64, 96, 96))


# Losses and optimizers.
@pattern
def smoothed_cross_entropy():
    return lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (numbers(2000, 1000), torch.randint(0, 1000, (2000,)))


@pattern
def huber():
    return lambda x, y: F.smooth_l1_loss(x, y), (numbers(1000, 2000), numbers(1000, 2000))


@pattern
def momentum_step():
    def f(p, g, m):
        m2 = 0.9 * m + g + 0.01 * p
        return p - 0.1 * (g + 0.9 * m2), m2

    return f, (numbers(3000, 500), numbers(3000, 500), numbers(3000, 500))


def error(got, exact):
    """The largest error of a result relative to its largest number."""
    worst = 0.0
    for g, e in zip(*(o if isinstance(o, tuple) else (o,) for o in (got, exact)), strict=True):
        worst = max(worst, ((g.double() - e).abs().max() / e.abs().max().clamp_min(1e-30)).item())
    return worst


def seconds(f, arguments, calls):
    start = time.perf_counter()
    for _ in range(calls):
        f(*arguments)
    return (time.perf_counter() - start) / calls


def main():
    global DTYPE
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("-k", default="")
    parser.add_argument("--compilers", default="eager,inductor,braze")
    args = parser.parse_args()
    DTYPE = getattr(torch, args.dtype)
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    compilers = {"eager": lambda f: f, "inductor": torch.compile, "braze": braze.compile}
    ratios, wrong = {"eager": {}, "inductor": {}}, []
    for name, make in PATTERNS.items():
        if args.k not in name:
            continue
        torch.manual_seed(0)
        f, arguments = make()
        exact = f(*(x.double() if x.is_floating_point() else x for x in arguments))
        allowed = 2 * error(f(*arguments), exact) + SLACK[args.dtype]
        functions = {compiler: compilers[compiler](f) for compiler in args.compilers.split(",")}
        for compiler, function in functions.items():
            if error(function(*arguments), exact) > allowed:
                wrong.append(f"{name} ({compiler})")
        calls = max(1, min(1000, int(0.02 / seconds(f, arguments, 2))))
        times = {compiler: [] for compiler in functions}
        for _ in range(9):
            for compiler, function in functions.items():
                times[compiler].append(seconds(function, arguments, calls))
        medians = {compiler: statistics.median(t) for compiler, t in times.items()}
        for rival in ratios.keys() & medians.keys():
            ratios[rival][name] = medians[rival] / medians["braze"]
        print(f"{name:24} " + "  ".join(f"{c} {t * 1e3:8.4f} ms x{medians[c] / medians['braze']:5.2f}" for c, t in medians.items()), flush=True)
    for rival, over in ratios.items():
        if over:
            least = min(over, key=over.get)
            print(f"braze over {rival}: geometric mean x{statistics.geometric_mean(over.values()):.2f}, least x{over[least]:.2f} ({least})")
    print(f"less accurate than twice eager's error: {', '.join(wrong) or 'none'}")
    return any("braze" in entry for entry in wrong)


if __name__ == "__main__":
    sys.exit(main())
