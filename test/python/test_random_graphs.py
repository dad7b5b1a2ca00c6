"""Random tensor programs: compiled against eager. BRAZE_RANDOM_SEED and BRAZE_RANDOM_COUNT choose others."""
import os

import pytest
import torch
from random_graphs import generate, run_lines

import braze

SEED = int(os.environ.get("BRAZE_RANDOM_SEED", "1"))
COUNT = int(os.environ.get("BRAZE_RANDOM_COUNT", "1000"))
GROUP = 50
# Relative to the largest value. A program is a chain of a dozen ops, each with a rounding of its own.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-10, torch.bfloat16: 4e-2, torch.float16: 6e-3}


def difference(got, want, exact):
    """What is wrong with `got`, or None. `exact`: the program's outputs on float64 copies of the inputs, or None."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{tuple(got.shape)} instead of {want.dtype}{tuple(want.shape)}"
    live = [d for d in range(want.dim()) if want.shape[d] > 1]
    if [got.stride(d) for d in live] != [want.stride(d) for d in live]:
        return f"strides {got.stride()} instead of {want.stride()}"
    if not want.dtype.is_floating_point:
        return None if torch.equal(got, want) else "values"
    a, b = got.double(), want.double()
    if not torch.equal(torch.isnan(a), torch.isnan(b)):
        return "NaN in other places"
    a, b = a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0)
    scale = max(1.0, b.abs().max().item())
    off = (a - b).abs().max().item() / scale
    return None if off <= TOLERANCE[want.dtype] else f"off by {off:.2e}"


def is_discontinuous(lines):
    """Rounding may flip a comparison, a floor or an argmax of computed values: such programs are compared by type only."""
    return any(word in line for line in lines for word in
               ("floor", "round", "argmax", "==", "!=", ">", "<=", "sign(", "//", "%", "int32", "bool", "max(", "isnan"))


def check(lines, inputs):
    f, source = run_lines(lines, len(inputs))
    with torch.no_grad():
        want = f(*inputs)
        got = braze.compile(f, fullgraph=True)(*inputs)
    for g, w in zip(got, want, strict=True):
        problem = difference(g, w, None)
        if problem and not (is_discontinuous(lines) and (problem == "values" or problem.startswith("off") or problem.startswith("NaN"))):
            return f"{problem}\n{source}inputs: {[(t.dtype, tuple(t.shape), t.stride()) for t in inputs]}"
    return None


def shrink(lines, inputs):
    """Drops trailing lines while the program still fails."""
    best = lines
    for length in range(1, len(lines)):
        try:
            if check(lines[:length], inputs):
                best = lines[:length]
                break
        except Exception:
            best = lines[:length]
            break
    return best


@pytest.mark.parametrize("group", range(COUNT // GROUP))
def test_random_programs(group):
    for i in range(GROUP):
        seed = SEED * 1_000_003 + group * GROUP + i
        lines, inputs = generate(seed)
        if not lines:
            continue
        try:
            problem = check(lines, inputs)
        except Exception as e:
            problem = f"{type(e).__name__}: {e}"
        if problem:
            small = shrink(lines, inputs)
            try:
                problem = check(small, inputs) or problem
            except Exception as e:
                problem = f"{type(e).__name__}: {e}\n" + run_lines(small, len(inputs))[1]
            pytest.fail(f"seed {seed}: {problem}")
    braze.reset()
