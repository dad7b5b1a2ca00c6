"""PyTorch's own operator samples, forward: traced, replayed against their types and compared with eager. Long: label full."""
import itertools

import pytest
import torch

from trace_driver import Refused, check

pytest.importorskip("expecttest", reason="torch.testing's samples need it")
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

pytestmark = pytest.mark.full
SAMPLES = 3

# Draw through torch.manual_seed inside the sample's wrapper, or leave memory unset: nothing to compare.
UNCOMPARABLE = {
    "cauchy", "exponential", "geometric", "log_normal", "normal", "uniform", "randn", "randn_like", "rand_like", "randint",
    "randint_like", "multinomial", "bernoulli", "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
    "new_empty_strided", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.scaled_dot_product_attention", "jiterator_unary", "jiterator_binary",
    "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref", "jiterator_2inputs_2outputs",
}
# libtorch's own type functions differ from its CPU kernels here; the runtime copies such results into place.
WRONG_META = {"linalg.eig", "linalg.eigvals", "fft.rfftn", "nn.functional.embedding_bag", "_batch_norm_with_update"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("op", op_db, ids=lambda op: op.name + op.variant_test_name)
def test_samples(op, dtype):
    if dtype not in op.dtypes or op.name in UNCOMPARABLE | WRONG_META:
        pytest.skip("not for this operator")
    n = len(list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES)))
    refused = 0
    for k in range(n):
        def make(k=k):
            sample = next(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), k, None))
            return (lambda x, args, kwargs: op(x, *args, **kwargs)), (sample.input, sample.args, sample.kwargs)
        try:
            check(make, tolerance=1e-3 if dtype == torch.bfloat16 else 2e-5)
        except Refused:
            refused += 1
    if n and refused == n:
        pytest.skip("refused")
