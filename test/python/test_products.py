"""Matrix products and attention of every element type against float64, no worse than eager."""
import pytest
import torch
import torch.nn.functional as F

import braze

TYPES = [torch.float32, torch.bfloat16, torch.float16]
# Half a unit in the last place of the largest value: what one rounding costs.
SLACK = {torch.float32: 1e-6, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}


def normal(*sizes, dtype, seed):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(f, *args, worse=1.5):
    exact, eager, got = f(*(a.double() for a in args)), f(*args), braze.compile(f)(*args)
    assert got.dtype == eager.dtype and got.shape == eager.shape and got.stride() == eager.stride()
    scale = exact.abs().max().item()
    error = (got.double() - exact).abs().max().item()
    allowed = worse * (eager.double() - exact).abs().max().item() + SLACK[args[0].dtype] * scale
    assert error <= allowed, f"{error} of {allowed} that are allowed"


PRODUCTS = {
    "mm": (lambda a, b: a @ b, lambda m, n, k: [(m, k), (k, n)]),
    "mm transposed": (lambda a, b: a.t() @ b.t(), lambda m, n, k: [(k, m), (n, k)]),
    "linear": (F.linear, lambda m, n, k: [(m, k), (n, k)]),
    "linear with bias": (F.linear, lambda m, n, k: [(2, m, k), (n, k), (n,)]),
    "addmm": (torch.addmm, lambda m, n, k: [(n,), (m, k), (k, n)]),
    "bmm": (torch.bmm, lambda m, n, k: [(3, m, k), (3, k, n)]),
    "bmm transposed": (lambda a, b: a.transpose(1, 2) @ b.transpose(1, 2), lambda m, n, k: [(3, k, m), (3, n, k)]),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype):
    f, sizes = PRODUCTS[name]
    for m, n, k in [(1, 70, 33), (33, 130, 127), (200, 65, 768)]:
        check(f, *(normal(*s, dtype=dtype, seed=i) for i, s in enumerate(sizes(m, n, k))))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", ["plain", "causal", "masked", "grouped"])
def test_attention(kind, dtype):
    def f(q, k, v, mask):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask if kind == "masked" else None, is_causal=kind == "causal", enable_gqa=kind == "grouped")
    for length, features in [(129, 64), (70, 24), (49, 32), (17, 8)]:
        q = normal(2, 4, length, features, dtype=dtype, seed=0)
        k, v = (normal(2, 2 if kind == "grouped" else 4, length, features, dtype=dtype, seed=i) for i in (1, 2))
        check(f, q, k, v, normal(length, length, dtype=dtype, seed=3))


@pytest.mark.parametrize("length", [49, 64, 75])
def test_scores_that_count_for_nothing(length):
    """Scores of -inf and far below the others, in whole vectors and at the ends of rows; NaN goes through."""
    q, k, v = (normal(2, 2, length, 16, dtype=torch.float32, seed=i) for i in range(3))
    mask = normal(length, length, dtype=torch.float32, seed=3)
    mask[:, 1::2] = -float("inf")
    mask[:, 20:44] = -1e9
    mask[:, -1] = -95.0
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype)), q, k, v)
    mask[3, length - 2] = float("nan")
    out = braze.compile(F.scaled_dot_product_attention)(q, k, v, attn_mask=mask)
    assert out[:, :, 3].isnan().all() and not out[:, :, :3].isnan().any() and not out[:, :, 4:].isnan().any()


@pytest.mark.parametrize("score", [-80.0, -88.0, -100.0])
def test_weights_below_the_normal_range_are_zero(score):
    """As in ATen's kernel: a subnormal weight would show beside values of 1e38, and cost a hundred times as much."""
    q, k, v = torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 32, 8), torch.full((1, 1, 32, 8), 1e38)
    v[:, :, 0] = 0
    mask = torch.full((4, 32), score)
    mask[:, 0] = 0
    out = braze.compile(F.scaled_dot_product_attention)(q, k, v, attn_mask=mask)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, attn_mask=mask), rtol=1e-5, atol=0)
    assert (out == 0).all() == (score < -87)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_backward(causal, dtype):
    def f(q, k, v, g):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return torch.cat([t.flatten() for t in torch.autograd.grad(out, (q, k, v), g)])

    q, k, v, g = (normal(2, 3, 70, 32, dtype=dtype, seed=i) for i in range(4))
    for t in (q, k, v):
        t.requires_grad_()
    compiled = braze.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    got = torch.cat([t.flatten() for t in torch.autograd.grad(compiled(q, k, v), (q, k, v), g)])
    exact, eager = f(*(t.double() for t in (q, k, v, g))), f(q, k, v, g)
    error = (got.double() - exact).abs().max().item()
    allowed = 1.5 * (eager.double() - exact).abs().max().item() + SLACK[dtype] * exact.abs().max().item()
    assert error <= allowed


def test_tuned_calls(tmp_path, monkeypatch, capfd):
    """max-autotune tries every way once, keeps what is fastest on disk, and gives the same results."""
    monkeypatch.setenv("BRAZE_CACHE_DIR", str(tmp_path))
    braze.set_logs("schedule")
    try:
        x, w, b = normal(33, 127, dtype=torch.float32, seed=0), normal(70, 127, dtype=torch.float32, seed=1), normal(70, dtype=torch.float32, seed=2)
        q = normal(1, 2, 40, 16, dtype=torch.float32, seed=3)

        def f(x, w, b, q):
            return F.linear(x, w, b), F.scaled_dot_product_attention(q, q, q)

        for _ in range(2):
            compiled = braze.compile(f, mode="max-autotune")
            for _ in range(2):
                for got, want in zip(compiled(x, w, b, q), f(x, w, b, q), strict=True):
                    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        tuned = [line for line in capfd.readouterr().err.splitlines() if " tuned " in line]
    finally:
        braze.set_logs()
    assert len(tuned) == 2
    product = next(line for line in tuned if "aten.addmm" in line)
    assert all(way in product for way in ("dot", "packed", "ATen")) and "sums" not in product
    assert list(tmp_path.glob("**/tuned_*"))
