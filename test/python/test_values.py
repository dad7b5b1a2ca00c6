"""Values that are easily almost right, and values that eager refuses: the same results, the same errors."""
import copy

import pytest
import torch
import torch.nn.functional as F

import braze

X = torch.randn(1024, generator=torch.Generator().manual_seed(0))
ZEROS = torch.tensor([0.0, -0.0] * 80)


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    yield


def signs(x):
    return (1 / x.float()).sign()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("f", [
    torch.relu, F.relu6, lambda x: F.hardtanh(x, -1.0, 0.0), lambda x: x.clamp(min=0.0), lambda x: x.clamp(min=-0.0),
    lambda x: x.clamp(max=0.0), lambda x: x.clamp(max=-0.0), lambda x: torch.fmax(x, -x), lambda x: torch.fmin(x, -x),
    lambda x: (x * 0.0 - 0.0).view(-1, 2).sum(1), lambda x: torch.stack([x, x]).mean(0)])
def test_signs_of_zeros(f, dtype):
    x = ZEROS.to(dtype)
    assert torch.equal(signs(braze.compile(f)(x)), signs(f(x)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("f", [
    lambda x: x.abs() ** 2.1, lambda x: x.abs() ** -1.7, lambda x: F.threshold(x, 0.1, 20.3),
    lambda x: torch.ops.aten.threshold_backward(x + 1, x, 0.3), lambda x: (x * 10).round(decimals=2),
    lambda x: (x * 1000).round(decimals=-1), lambda x: x.clamp(0.1, 0.65), lambda x: F.hardshrink(x, 0.3)])
def test_numbers_beside_16_bit_values(f, dtype):
    x = X.to(dtype)
    assert torch.equal(braze.compile(f, fullgraph=True)(x), f(x))


def half(x):
    return x.half()


def long_zeros(*sizes):
    return torch.zeros(sizes, dtype=torch.long)


# Kernels trust these sizes.
MISFITS = {
    "scatter": lambda x: x.scatter(0, long_zeros(1, 7), 1.0),
    "scatter rows": lambda x: x.scatter(1, long_zeros(5, 2), 1.0),
    "scatter_add": lambda x: x.scatter_add(0, long_zeros(2, 7), x),
    "scatter_reduce": lambda x: x.scatter_reduce(0, long_zeros(2, 7), x, "sum"),
    "index_add": lambda x: x.index_add(0, long_zeros(2), x),
    "index_add columns": lambda x: x.index_add(0, long_zeros(4), x[:, :5]),
    "select_scatter": lambda x: x.select_scatter(x[0], 0, 4),
    "select_scatter source": lambda x: x.select_scatter(x[:2], 0, 1),
    "slice_scatter": lambda x: x.slice_scatter(x[:1], 0, 4, 5),
    "diagonal_scatter": lambda x: x.diagonal_scatter(torch.zeros(5), 1),
    "as_strided": lambda x: x.as_strided((2,), (-1,)),
    "bias": lambda x: F.conv2d(x.view(1, 1, 4, 6), torch.ones(4, 1, 1, 1), torch.ones(5)),
    "index_put": lambda x: x.index_put((long_zeros(2),), torch.ones(5)),
    "index_put rows": lambda x: x.index_put((long_zeros(2),), torch.ones(1, 1, 6)),
    "assigned": lambda x: x.__setitem__(long_zeros(2), torch.ones(5)),
    "class weights": lambda x: F.cross_entropy(x, long_zeros(4), weight=torch.ones(5)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_operands_that_do_not_fit(name):
    x = torch.zeros(4, 6)
    with pytest.raises((RuntimeError, IndexError)):
        MISFITS[name](x)
    with pytest.raises((RuntimeError, IndexError)):
        braze.compile(MISFITS[name])(x)


def test_a_size_that_no_longer_fits():
    def f(x, index):
        return x.scatter(0, index, 1.0)

    compiled = braze.compile(f)
    for columns in (8, 7, 6):
        x = torch.zeros(4, columns)
        assert torch.equal(compiled(x, long_zeros(1, 6)), f(x, long_zeros(1, 6)))
    with pytest.raises(RuntimeError):
        compiled(torch.zeros(4, 5), long_zeros(1, 6))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("f", [
    lambda y: y[:, ::2].flatten(), lambda y: y.chunk(2, 1)[0].reshape(y.shape[0], 2, -1), lambda y: y.t().reshape(y.shape[1], -1),
    lambda y: y.unfold(-1, 1, 2).reshape(y.shape[0], -1), lambda y: y.view(y.shape[0], -1, 2)[..., 0].reshape(y.shape[0], -1)])
def test_views_under_changing_sizes(f, dynamic):
    """Whether a reshape is a view or a copy decides what a write changes."""
    def write(x):
        y = x.clone()
        f(y).zero_()
        return y

    compiled = braze.compile(write, dynamic=dynamic)
    for size in ((3, 8), (4, 12), (5, 16)):
        x = torch.ones(size)
        assert torch.equal(compiled(x), write(x))


def test_corrections_that_change():
    x = torch.arange(24.0).view(4, 6)
    for f in (lambda x, i: x.var(0, correction=i), lambda x, i: torch.std(x, correction=i)):
        compiled = braze.compile(f)
        for i in (1, 2, 3, 0):
            torch.testing.assert_close(compiled(x, i), f(x, i))


def test_autocast_settings_that_stay():
    before = torch.get_autocast_dtype("cpu")
    compiled = braze.compile(lambda x: (torch.set_autocast_dtype("cpu", torch.float16), x * 2)[1])
    try:
        compiled(torch.ones(2))
        assert torch.get_autocast_dtype("cpu") == torch.float16
    finally:
        torch.set_autocast_dtype("cpu", before)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_device_as_a_context_leaves_nothing_behind(device):
    def f(x):
        with torch.device(device):
            made = torch.ones(3)
        return made.device.type, x * 2

    compiled = braze.compile(f)
    for _ in range(2):
        name, result = compiled(torch.ones(3))
        assert (name, result.tolist()) == (device, [2.0, 2.0, 2.0])
        assert torch.get_default_device().type == "cpu" and torch.ones(2).device.type == "cpu"
        assert torch._C._len_torch_function_stack() == 0


ERRORS = {
    "fill": lambda x: x.to(torch.uint8).fill_(257),
    "fill half": lambda x: half(x).fill_(1e6),
    "full": lambda x: torch.full((2,), 1e6, dtype=torch.float16) + x[0],
    "full_like": lambda x: torch.full_like(x.to(torch.uint8), 300),
    "masked_fill": lambda x: half(x).masked_fill(x > 0, -1e9),
    "index_fill": lambda x: x.to(torch.uint8).index_fill(0, torch.tensor([0]), 300),
    "scatter": lambda x: x.to(torch.uint8).scatter(0, torch.tensor([0]), 300),
    "pad": lambda x: F.pad(x.to(torch.uint8), (1, 1), value=300),
    "clamp": lambda x: x.int().clamp(max=2**40),
    "copy within": lambda x: x.narrow(0, 1, 2).copy_(x.narrow(0, 0, 2)),
    "add transposed": lambda x: x.clone().view(32, 32).add_(x.view(32, 32).t()) and x.view(32, 32).add_(x.view(32, 32).t()),
    "max of nothing": lambda x: x[:0].max(),
    "min of nothing": lambda x: x[:0].min(),
    "max over nothing": lambda x: x.view(4, -1)[:0].max(0).values,
    "difference with a bool": lambda x: x - False,
    "difference from a bool": lambda x: False - x,
    "difference in place": lambda x: x.sub_(True),
    "alpha of another kind": lambda x: torch.add(x, x, alpha=True),
    "alpha of a float": lambda x: torch.add(x.long(), x.long(), alpha=1.5),
    "where": lambda x: torch.where(x > 0, x, 1e300),
    "where uint8": lambda x: torch.where(x > 0, x.to(torch.uint8), 300),
    "lerp": lambda x: x.lerp(x, 1e300),
    "threshold": lambda x: F.threshold(x, 1e300, 2.0),
    "addcmul": lambda x: half(x).addcmul(half(x), half(x), value=1e300),
    "sum half": lambda x: half(x).add(half(x), alpha=1e6),
    "elu": lambda x: F.elu(x, 1e300),
    "index_put of another type": lambda x: x.index_put((long_zeros(2),), torch.ones(2, dtype=torch.double)),
    "huber": lambda x: F.huber_loss(x, x, delta=0),
    "smooth l1": lambda x: F.smooth_l1_loss(x, x, beta=-1),
    "softshrink": lambda x: F.softshrink(x, -1.0),
    "flip": lambda x: x.view(2, -1).flip((0, 0)),
    "flip wrapped": lambda x: x.view(2, -1).flip((0, -2)),
    "squeeze": lambda x: x.view(2, -1).squeeze((0, 0)),
    "gelu": lambda x: F.gelu(x, approximate="q"),
    "bits of floats": lambda x: x & x,
    "abs of bools": lambda x: (x > 0).abs(),
    "floor of bools": lambda x: (x > 0).floor(),
    "argmax of bools": lambda x: (x > 0).argmax(),
    "fraction of integers": lambda x: x.long().frac(),
    "division by zero": lambda x: x.long() // 0,
    "remainder of zero": lambda x: x.long() % 0,
    "no such dimension": lambda x: (x.softmax(5), x + 1)[1],
}


@pytest.mark.parametrize("name", ERRORS)
def test_values_that_eager_refuses(name):
    f = ERRORS[name]
    with pytest.raises(Exception) as expected:   # noqa: B017, PT011: eager's, whatever it is
        f(X.clone())
    with pytest.raises(type(expected.value)) as got:
        braze.compile(f)(X.clone())
    assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]


UNUSED = {
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "index": lambda x, i: x[i],
    "index columns": lambda x, i: x[:, i],
    "index both": lambda x, i: x[i, i],
    "gather": lambda x, i: x.gather(0, i[None]),
    "take": lambda x, i: x.take(i * 10),
    "put": lambda x, i: x.put(i * 10, x[:1, :1]),
    "scatter": lambda x, i: x.scatter(0, i[None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], x),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_put": lambda x, i: x.index_put((i,), x[:1]),
    "one_hot": lambda x, i: F.one_hot(i, 2),
    "loss": lambda x, i: F.nll_loss(x, i.expand(4)),
    "division": lambda x, i: x.long() // (i + 1),
    "remainder": lambda x, i: 3 % (i + 1),
    "inverse": lambda x, i: torch.linalg.inv(x[:, :4] * (i != 9)),
}


@pytest.mark.parametrize("index, trains", [(9, True), (-1, False), (3, False)])
@pytest.mark.parametrize("name", UNUSED)
def test_unused_results_of_operators_that_may_fail(name, index, trains):
    def f(x, i):
        UNUSED[name](x, i)
        return x + 1

    def outcome(function):
        try:
            return function(torch.eye(4, 6, requires_grad=trains), torch.tensor([index])).tolist()
        except (RuntimeError, IndexError) as error:
            return type(error)

    assert outcome(braze.compile(f)) == outcome(f)


def test_a_handler_for_an_unused_lookup():
    def f(x, i):
        try:
            x[i]
        except IndexError:
            return x - 1
        return x + 1

    compiled = braze.compile(f)
    for index in (0, 9, 1, -9):
        assert torch.equal(compiled(torch.ones(3), torch.tensor([index])), f(torch.ones(3), torch.tensor([index])))


@pytest.mark.parametrize("f", [
    lambda x: torch.where(x > 0, half(x), 1e6), lambda x: F.threshold(half(x), 1e6, 1.0), lambda x: torch.where(x > 0, x.to(torch.uint8), -1),
    lambda x: x + True, lambda x: torch.add(x > 0, x > 1, alpha=True), lambda x: F.smooth_l1_loss(x, x, beta=0),
    lambda x: x.index_put((long_zeros(2),), torch.ones(1)), lambda x: x.clone().view(4, -1).index_put((long_zeros(2, 3),), x[:256]),
    lambda x: x // 0, lambda x: x.roll((1, 2), (0, 0)),
    lambda x: x.to(torch.uint8).fill_(-1), lambda x: half(x).masked_fill(x > 0, -float("inf")),
    lambda x: x.view(32, 32)[0].add_(x.view(32, 32)[1]), lambda x: x.view(32, 32)[:, 0].add_(x.view(32, 32)[:, 1]),
    lambda x: x.add_(x), lambda x: x[:512].add_(x[512:])])
def test_values_that_are_just_allowed(f):
    assert torch.equal(braze.compile(f, fullgraph=True)(X.clone()), f(X.clone()))


@pytest.mark.parametrize("f", [
    lambda x: torch.zeros(5).index_add(0, torch.zeros(7, dtype=torch.long), torch.ones(7)) + x,
    lambda x: torch.zeros(5).index_add(0, torch.zeros(70, dtype=torch.long), torch.ones(70)) + x,
    lambda x: torch.zeros(5, 3).index_add(0, torch.zeros(40, dtype=torch.long), x[:1].expand(40, 3)),
    lambda x: torch.ones(5).scatter_reduce(0, torch.zeros(5, dtype=torch.long), torch.full((5,), 2.0), "prod") + x,
    lambda x: torch.zeros(5).index_put((torch.zeros(33, dtype=torch.long),), torch.ones(33), accumulate=True) + x,
    lambda x: torch.zeros(5).scatter_add(0, torch.zeros(5, dtype=torch.long), x),
    lambda x: torch.zeros(5).scatter(0, torch.ones(5, dtype=torch.long), x)])
def test_updates_that_all_meet_in_one_place(f):
    x = torch.arange(1.0, 6.0)
    assert torch.equal(braze.compile(f, fullgraph=True)(x), f(x))


@pytest.mark.parametrize("view", [lambda x: x.unfold(0, 3, 1), lambda x: x.as_strided((3, 2), (1, 1)), lambda x: x[:1].expand(3)])
def test_written_inputs_whose_elements_share_memory(view):
    def f(v):
        v.add_(1)
        return v

    results = []
    for g in (f, braze.compile(f)):
        x = torch.arange(5.0)
        try:
            g(view(x))
        except RuntimeError as error:
            results.append(str(error))
        else:
            results.append(x.tolist())
    assert results[0] == results[1]


def test_detached_results_are_no_views():
    x = torch.ones(3, 2)
    for f in (lambda x: x.detach(), lambda x: x.data, lambda x: x.view(-1).detach(), lambda x: x.view(-1), lambda x: x[0]):
        for needs_gradients in (False, True):
            a, b = f(x.clone().requires_grad_(needs_gradients)), braze.compile(f)(x.clone().requires_grad_(needs_gradients))
            assert (a._is_view(), a.requires_grad) == (b._is_view(), b.requires_grad)


def test_state_that_is_read():
    """What the program asks of torch's state is asked again when that has changed."""
    compiled = braze.compile(lambda x: (x + 1, torch.backends.cudnn.benchmark, torch.distributed.is_initialized()))
    threads = braze.compile(lambda x: x * torch.get_num_threads())
    before, n = torch.backends.cudnn.benchmark, torch.get_num_threads()
    try:
        for value in (False, True, False):
            torch.backends.cudnn.benchmark = value
            assert compiled(torch.ones(1))[1:] == (value, False)
        for k in (1, 2):
            torch.set_num_threads(k)
            assert threads(torch.ones(1)).item() == k
    finally:
        torch.backends.cudnn.benchmark = before
        torch.set_num_threads(n)


def test_layouts_of_one_hot():
    index = torch.arange(6).view(2, 3)
    for x in (index, index.t()):
        got, want = braze.compile(lambda x: F.one_hot(x, 6))(x), F.one_hot(x, 6)
        assert torch.equal(got, want) and got.stride() == want.stride()


def test_arguments_stay_as_they_were():
    x = X.clone()
    before = copy.deepcopy(x)
    with pytest.raises(RuntimeError):
        braze.compile(ERRORS["copy within"])(x)
    assert torch.equal(x, before)


def outer_with_nothing(x):
    return torch.outer(x[:3].index_select(0, torch.arange(0) % 3), x)


@pytest.mark.parametrize("f", [
    outer_with_nothing, lambda x: x.scatter(0, torch.zeros(0, dtype=torch.long), x.detach()),
    lambda x: F.grid_sample(x.view(1, 1, 2, 2), x.new_ones(1, 0, 2, 2), align_corners=False),
    lambda x: x.amax(0, keepdim=True).index_select(-1, torch.arange(0) % 1)])
def test_computed_indices_into_nothing(f):
    results = []
    for g in (f, braze.compile(f, fullgraph=True)):
        x = torch.arange(4.0, dtype=torch.float64).requires_grad_()
        out = g(x)
        out.sum().backward()
        results.append((out.shape, x.grad))
    assert results[0][0] == results[1][0] and torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", [(40,), (3, 40), (40, 3), (2, 17)], ids=str)
def test_running_products_in_order(sizes, dtype):
    """The product of neighbours overflows where the running product is 0."""
    x = torch.full(sizes, torch.finfo(dtype).max / 2, dtype=dtype)
    for dim in range(len(sizes)):
        y = x.clone()
        y.select(dim, 1).zero_()
        torch.testing.assert_close(braze.compile(lambda y, dim=dim: y.cumprod(dim))(y), y.cumprod(dim), equal_nan=True)


WRITES = {
    "one": lambda x: x.add_(1), "two": lambda x: x.add_(1).mul_(2), "through data": lambda x: x.data.add_(1),
    "through detach": lambda x: x.detach().add_(1), "part": lambda x: x[:1].add_(1), "both": lambda x: (x.data.add_(1), x.mul_(2)),
}


@pytest.mark.parametrize("name", WRITES)
def test_versions_of_written_inputs(name):
    def f(x):
        WRITES[name](x)
        return x * 1

    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        a, b = torch.ones(3), torch.ones(3)
        before = a._version, b._version
        assert torch.equal(f(a), compiled(b))
        assert torch.equal(a, b)
        assert a._version - before[0] == b._version - before[1]


def test_weights_written_through_data_before_the_backward_pass():
    @braze.compile(fullgraph=True)
    def update(w):
        w.data.mul_(0.5)
        return w.data.sum()

    w = torch.ones(3, requires_grad=True)
    loss = (w * w).sum()
    update(w)
    loss.backward()
    assert w.grad.tolist() == [1.0] * 3


def test_autocast_casts_a_weight_once():
    layer = torch.nn.Linear(64, 64)
    compiled = copy.deepcopy(layer)
    x = X.view(16, 64)

    def f(module):
        with torch.autocast("cpu", torch.bfloat16):
            return module(torch.relu(module(x).float())).float().sum()

    f(layer).backward()
    braze.compile(f, fullgraph=True)(compiled).backward()
    assert torch.equal(compiled.weight.grad.bfloat16().float(), compiled.weight.grad)   # summed in 16 bits
    torch.testing.assert_close(compiled.weight.grad, layer.weight.grad, rtol=2e-2, atol=2e-2)
