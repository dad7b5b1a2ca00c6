"""Errors against float64: of every math function in units in the last place, at most max(2, eager's own), and above 2
about as often as eager's at the most; of reductions and products over random shapes, at most twice eager's, or a unit in
the last place above it.

usage: test_accuracy.py [--shapes 1000] [--points 4000000] [--seed 0]     prints every figure; pytest runs a small part
"""
import argparse
import math
import random
import sys

import braze
import pytest
import torch
import torch.nn.functional as F

EPSILON = 2.0**-23

FUNCTIONS = {
    **{name: getattr(torch, name) for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh "
        "atanh erf erfc erfinv lgamma sigmoid").split()},
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "elu": F.elu,
    "selu": F.selu,
    "pow 3": lambda x: x**3,
    "pow -1.5": lambda x: x**-1.5,
    "2 pow": lambda x: 2.0**x,
}
# logaddexp of negative numbers may cancel, where an error is a matter of luck.
FUNCTIONS_OF_TWO = {"pow": torch.pow, "atan2": torch.atan2, "hypot": torch.hypot, "div": torch.div, "xlogy": torch.xlogy,
                    "logaddexp": lambda x, y: torch.logaddexp(x.abs(), y.abs())}


def points(count, generator):
    """A third each of usual numbers, of numbers about 1 and of all exponents."""
    third = count // 3
    usual = torch.randn(third, generator=generator) * 5
    near_one = 1 + torch.randn(third, generator=generator) * 0.1
    signs = torch.randint(0, 2, (third,), generator=generator) * 2.0 - 1
    wide = signs * torch.exp2(torch.rand(third, generator=generator, dtype=torch.float64) * 250 - 125).float()
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan])
    return torch.cat([usual, near_one, wide, special])


def units(got, exact):
    """The largest distance of a result from the exact one, in units in the last place of the exact one, and the share of
    results that are further away than 2."""
    want = exact.float()
    finite = want.isfinite() & got.isfinite()
    if not torch.equal(got[~finite].nan_to_num(nan=1.0), want[~finite].nan_to_num(nan=1.0)):
        return math.inf, 1.0
    got, exact, want = got[finite], exact[finite], want[finite]
    size = want.abs().clamp_min(2.0**-126)   # below, units are as at the least normal number
    unit = torch.nextafter(size, torch.tensor(math.inf)).double() - size.double()
    distance = (got.double() - exact).abs() / unit
    return distance.max().item(), (distance > 2).double().mean().item()


def function_error(function, arguments):
    """Units of ours, units of eager, and the units that are allowed: 0 if too many are above 2."""
    exact = function(*(x.double() for x in arguments))
    ours = braze.compile(function, fullgraph=True)(*arguments)
    (worst, above), (eager_worst, eager_above) = units(ours, exact), units(function(*arguments), exact)
    return worst, eager_worst, max(2, eager_worst) if above <= 1.25 * eager_above + 1e-3 else 0


REDUCTIONS = {
    "sum": lambda x, d: x.sum(d), "mean": lambda x, d: x.mean(d), "var": lambda x, d: x.var(d, correction=0),
    "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d), "logsumexp": lambda x, d: torch.logsumexp(x, d),
    "softmax": lambda x, d: torch.softmax(x, d[0]), "log_softmax": lambda x, d: torch.log_softmax(x, d[0]),
    "cumsum": lambda x, d: torch.cumsum(x, d[0]), "layer_norm": lambda x, d: F.layer_norm(x, x.shape[-1:]),
    "sum of products": lambda x, d: (x * (x + 1)).sum(d),
}
PRODUCTS = {
    "mm": lambda a, b: a @ b, "linear": lambda a, b: F.linear(a, b.t().contiguous()), "mm of transposed": lambda a, b: a.t().contiguous().t() @ b,
    "bmm": lambda a, b: torch.bmm(a.expand(3, *a.shape).contiguous(), b.expand(3, *b.shape).contiguous()),
}


def size(rng, most):
    return round(math.exp(rng.uniform(0, math.log(most))))


def reduction_case(rng, generator):
    shape = [size(rng, 2000)]
    while rng.random() < 0.6 and len(shape) < 4:
        shape.append(size(rng, max(1, 100_000 // math.prod(shape))))
    rng.shuffle(shape)
    x = torch.randn(shape, generator=generator)
    if rng.random() < 0.5:
        x = x.abs() + 0.5
    if len(shape) > 1 and rng.random() < 0.3:
        x = x.transpose(0, rng.randrange(1, len(shape)))
    dims = rng.sample(range(x.dim()), rng.randint(1, x.dim()))
    return x, dims


def reduction_error(name, x, dims):
    """Ours and eager's, relative to the largest result, or to what chance makes of a sum of so many numbers."""
    function = REDUCTIONS[name]
    exact = function(x.double(), dims)
    scale = exact.abs().max().item()
    if name in ("sum", "mean", "cumsum", "sum of products"):
        scale = max(scale, function(x.double().abs(), dims).abs().max().item() / math.sqrt(math.prod(x.shape[d] for d in dims)))
    compiled = braze.compile(function, fullgraph=True, dynamic=False)
    return tuple((got - exact).abs().max().item() / max(scale, 1e-30) for got in (compiled(x, dims), function(x, dims)))


def product_error(name, dtype, rng, generator):
    m, n, k = (size(rng, 700) for _ in range(3))
    a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((m, k), (k, n)))
    function = PRODUCTS[name]
    exact = function(a.double(), b.double())
    compiled = braze.compile(function, fullgraph=True, dynamic=False)
    scale = max(exact.abs().max().item(), math.sqrt(k))
    return tuple((got - exact).abs().max().item() / scale for got in (compiled(a, b), function(a, b)))


def root_mean_squares(errors):
    return [math.sqrt(sum(e[i] ** 2 for e in errors) / len(errors)) for i in range(2)]


def reduction_errors(name, shapes, seed):
    """Root mean squares over random shapes: ours, eager's."""
    rng, generator = random.Random(f"{name} {seed}"), torch.Generator().manual_seed(seed)
    errors = []
    for _ in range(shapes):
        errors.append(reduction_error(name, *reduction_case(rng, generator)))
        braze.reset()
    return root_mean_squares(errors)


def product_errors(name, dtype, shapes, seed):
    rng, generator = random.Random(f"{name} {seed}"), torch.Generator().manual_seed(seed)
    errors = []
    for _ in range(shapes):
        errors.append(product_error(name, dtype, rng, generator))
        braze.reset()
    return root_mean_squares(errors)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    ours, _, allowed = function_error(FUNCTIONS[name], (points(60_000, torch.Generator().manual_seed(1)),))
    assert ours <= allowed


@pytest.mark.parametrize("name", FUNCTIONS_OF_TWO)
def test_function_of_two(name):
    generator = torch.Generator().manual_seed(2)
    x, y = points(60_000, generator), points(60_000, generator)
    ours, _, allowed = function_error(FUNCTIONS_OF_TWO[name], (x, y[torch.randperm(len(y), generator=generator)]))
    assert ours <= allowed


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    ours, eager = reduction_errors(name, 6, seed=3)
    assert ours <= max(2 * eager, eager + EPSILON)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name, dtype):
    ours, eager = product_errors(name, dtype, 5, seed=4)
    assert ours <= max(2 * eager, eager + EPSILON)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", type=int, default=1000, help="of reductions and products each, over all of them")
    parser.add_argument("--points", type=int, default=4_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failed = []

    def report(kind, name, ours, eager, allowed, unit):
        print(f"{kind:10} {name:24} ours {ours:10.3g}  eager {eager:10.3g} {unit}{'' if ours <= allowed else '   above the bar'}", flush=True)
        failed.extend([name] if ours > allowed else [])

    for name, function in (FUNCTIONS | FUNCTIONS_OF_TWO).items():
        generator = torch.Generator().manual_seed(args.seed)
        x, y = points(args.points, generator), points(args.points, generator)
        y = y[torch.randperm(len(y), generator=generator)]
        report("function", name, *function_error(function, (x,) if name in FUNCTIONS else (x, y)), "ulp")
    for name in REDUCTIONS:
        ours, eager = reduction_errors(name, args.shapes // len(REDUCTIONS), args.seed)
        report("reduction", name, ours, eager, max(2 * eager, eager + EPSILON), "relative")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for name in PRODUCTS:
            ours, eager = product_errors(name, dtype, args.shapes // (3 * len(PRODUCTS)), args.seed)
            report("product", f"{name} {str(dtype)[6:]}", ours, eager, max(2 * eager, eager + EPSILON), "relative")
    print(f"{len(failed)} above the bar{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
