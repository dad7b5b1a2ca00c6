"""Optimizers inside a compiled step: values, states and errors are eager's, and a step is one graph."""
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import braze
from training_programs import step


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()


def net(dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)


def data(seed, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(5, 4, generator=g).to(dtype), torch.randn(5, 2, generator=g).to(dtype)


def flat_state(optimizer):
    out = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            out += [(name, value) for name, value in sorted(optimizer.state[p].items())]
    return out


def same(got, expected, tolerance=1e-6):
    assert type(got) is type(expected)
    if isinstance(got, torch.Tensor):
        assert got.dtype == expected.dtype and got.shape == expected.shape and got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, rtol=10 * tolerance, atol=tolerance)
    else:
        assert got == expected


def compare(make, n=5, graphs=None, dtype=torch.float32, tolerance=1e-6, step=step, between=None, **options):
    """Runs eagerly and compiled from the first step on."""
    runs = []
    for compiled in (False, True):
        model = net(dtype)
        optimizer = make(list(model.parameters()))
        f = braze.compile(step, **{"fullgraph": True, **options}) if compiled else step
        losses = []
        for i in range(n):
            losses.append(f(model, optimizer, *data(i, dtype)))
            if between is not None:
                between(optimizer, i)
        runs.append((losses, list(model.parameters()), [p.grad for p in model.parameters()], flat_state(optimizer)))
    for expected, got in zip(*runs, strict=True):
        for e, g in zip(expected, got, strict=True):
            if isinstance(e, tuple):
                assert e[0] == g[0]
                e, g = e[1], g[1]
            same(g, e, tolerance)
    assert not braze.counters()["skipped"]
    if graphs is not None:
        assert braze.counters()["graphs"] == graphs


WAYS = [{}, {"foreach": True}, {"foreach": False}]
FUSED = [*WAYS, {"fused": True}]


def with_ways(name, ways, *options):
    return [pytest.param(name, {**way, **option}, id=f"{name}-{way}-{option}") for option in options for way in ways]


CASES = [
    *with_ways("SGD", FUSED, {}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {"momentum": 0.5, "dampening": 0.1},
               {"maximize": True}),
    *with_ways("Adam", FUSED, {}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True}),
    *with_ways("AdamW", FUSED, {}, {"amsgrad": True, "maximize": True}),
    *with_ways("Adagrad", FUSED, {}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"maximize": True}),
    *with_ways("Adadelta", WAYS, {}, {"weight_decay": 0.1, "maximize": True}),
    *with_ways("Adamax", WAYS, {}, {"weight_decay": 0.1, "maximize": True}),
    *with_ways("ASGD", WAYS, {}, {"t0": 2, "weight_decay": 0.1}, {"maximize": True}),
    *with_ways("NAdam", WAYS, {}, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"maximize": True}),
    *with_ways("RAdam", WAYS, {}, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"maximize": True}),
    *with_ways("RMSprop", WAYS, {}, {"momentum": 0.5, "centered": True}, {"weight_decay": 0.1, "maximize": True}),
    *with_ways("Rprop", WAYS, {}, {"maximize": True}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps(name, options):
    compare(lambda p: getattr(torch.optim, name)(p, lr=0.01, **options), n=8 if name == "RAdam" else 4)


@pytest.mark.parametrize("name", ["Adam", "SGD", "Adagrad"])
@pytest.mark.parametrize("way", FUSED, ids=str)
def test_low_precision_and_double(name, way):
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float64, 1e-12)):
        compare(lambda p: getattr(torch.optim, name)(p, lr=0.01, **way), n=3, dtype=dtype, tolerance=tolerance)


def test_a_step_is_two_graphs_whatever_the_number_of_steps():
    for way in FUSED:
        braze.reset()
        compare(lambda p: torch.optim.Adam(p, lr=0.01, **way), n=8, graphs=2)


def test_what_eager_refuses():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    for f in (step, braze.compile(step)):
        with pytest.raises(AssertionError, match="capturable=True"):
            f(model, optimizer, *data(0))


def test_a_rate_that_changes_is_no_new_graph():
    def change(optimizer, i):
        optimizer.param_groups[0]["lr"] = 0.01 * 0.9**i

    for way in FUSED:
        braze.reset()
        compare(lambda p: torch.optim.AdamW(p, lr=0.01, **way), n=10, between=change)
        assert braze.counters()["graphs"] <= 4


def test_a_rate_in_a_tensor():
    def change(optimizer, i):
        optimizer.param_groups[0]["lr"].mul_(0.5)

    for name in ("SGD", "Adam", "AdamW", "RMSprop"):
        braze.reset()
        compare(lambda p: getattr(torch.optim, name)(p, lr=torch.tensor(0.01)), n=5, between=change, graphs=2)


def test_groups_with_their_own_rates():
    def make(p):
        return torch.optim.AdamW([{"params": p[:2], "lr": 0.1}, {"params": p[2:], "weight_decay": 0.5}], lr=0.01)

    compare(make, n=4, graphs=2)


def test_a_group_that_is_added():
    def make(p):
        return torch.optim.SGD(p[:2], lr=0.1, momentum=0.9)

    runs = []
    for compiled in (False, True):
        model = net()
        p = list(model.parameters())
        optimizer = make(p)
        f = braze.compile(step, fullgraph=True) if compiled else step
        for i in range(6):
            f(model, optimizer, *data(i))
            if i == 2:
                optimizer.add_param_group({"params": p[2:], "lr": 0.05})
        runs.append(p)
    for e, g in zip(*runs, strict=True):
        torch.testing.assert_close(g, e)


def test_a_state_that_is_loaded():
    runs = []
    for compiled in (False, True):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        f = braze.compile(step, fullgraph=True) if compiled else step
        for i in range(6):
            f(model, optimizer, *data(i))
            if i == 1:
                saved = {"state": {k: {n: t.clone() for n, t in s.items()} for k, s in optimizer.state_dict()["state"].items()},
                         "param_groups": optimizer.state_dict()["param_groups"]}
            if i == 3:
                optimizer.load_state_dict(saved)
        runs.append((list(model.parameters()), [v for _, v in flat_state(optimizer)]))
    for expected, got in zip(*runs, strict=True):
        for e, g in zip(expected, got, strict=True):
            torch.testing.assert_close(g, e)


def test_two_functions_share_an_optimizer():
    def doubled(model, optimizer, x, y):
        optimizer.zero_grad()
        (2 * F.mse_loss(model(x), y)).backward()
        optimizer.step()

    runs = []
    for compiled in (False, True):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        steps = [braze.compile(f, fullgraph=True) if compiled else f for f in (step, doubled)]
        for i in range(6):
            steps[i % 2](model, optimizer, *data(i))
        runs.append(list(model.parameters()))
    for e, g in zip(*runs, strict=True):
        torch.testing.assert_close(g, e)


SCHEDULERS = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "multistep": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 5], 0.5),
    "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.95**n),
    "multiplicative": lambda o: torch.optim.lr_scheduler.MultiplicativeLR(o, lambda n: 0.9),
    "constant": lambda o: torch.optim.lr_scheduler.ConstantLR(o, 0.5, 3),
    "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.2, 1.0, 6),
    "polynomial": lambda o: torch.optim.lr_scheduler.PolynomialLR(o, 8, 2.0),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
    "restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "cyclic": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, 3),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [3]),
    "chained": lambda o: torch.optim.lr_scheduler.ChainedScheduler(
        [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)]),
}


def schedule(name, inside, compiled, n=10, **options):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = SCHEDULERS[name](optimizer)

    def with_scheduler(model, optimizer, x, y):
        loss = step(model, optimizer, x, y)
        scheduler.step()
        return loss

    f = with_scheduler if inside else step
    f = braze.compile(f, **options) if compiled else f
    rates = []
    for i in range(n):
        f(model, optimizer, *data(i))
        if not inside:
            scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    state = {k: v for k, v in scheduler.state_dict().items() if not k.startswith("_schedulers")}
    return list(model.parameters()), rates, state


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_outside(name):
    expected, got = schedule(name, False, False), schedule(name, False, True, fullgraph=True)
    assert got[1] == expected[1]
    for e, g in zip(expected[0], got[0], strict=True):
        torch.testing.assert_close(g, e)
    assert braze.counters()["graphs"] <= 4 and not braze.counters()["skipped"]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_inside(name):
    expected, got = schedule(name, True, False), schedule(name, True, True)
    assert got[1] == expected[1]
    assert {k: v for k, v in got[2].items() if not callable(v)}.keys() == {k: v for k, v in expected[2].items() if not callable(v)}.keys()
    for e, g in zip(expected[0], got[0], strict=True):
        torch.testing.assert_close(g, e)
    assert not braze.counters()["skipped"]


def pair(train, **options):
    """What `train(compile)` gives eagerly and compiled."""
    expected = train(lambda f: f)
    got = train(lambda f: braze.compile(f, **options))
    for e, g in zip(expected, got, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("average", [None, torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), torch.optim.swa_utils.get_swa_multi_avg_fn()],
                         ids=["default", "ema", "swa"])
def test_averaged_models(average):
    def train(compile):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=average)

        def f(x, y):
            step(model, optimizer, x, y)
            averaged.update_parameters(model)

        f = compile(f)
        for i in range(5):
            f(*data(i))
        return [*averaged.parameters(), *averaged.buffers()]

    pair(train, fullgraph=True)
    assert braze.counters()["graphs"] <= 4


@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping(foreach):
    def train(compile):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def f(x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=foreach)
            nn.utils.clip_grad_value_(model.parameters(), 0.05, foreach=foreach)
            optimizer.step()
            return norm

        f = compile(f)
        return [f(*data(i)) for i in range(4)] + list(model.parameters())

    pair(train, fullgraph=True)


@pytest.mark.parametrize("fused", [False, True])
def test_gradient_scaler(fused):
    def train(compile):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)

        def f(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        f = compile(f)
        losses = [f(*data(i)) for i in range(3)]
        losses.append(f(data(3)[0] * float("inf"), data(3)[1]))   # this step is skipped
        losses.append(f(*data(4)))
        return [*losses, torch.tensor(scaler.get_scale()), *model.parameters()]

    def train_finite(compile):
        return [t for t in train(compile) if t.isfinite().all()]

    pair(train_finite)


def test_autocast():
    def train(compile):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def f(x, y):
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        f = compile(f)
        losses = [f(*data(i)).float() for i in range(3)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses += [f(*data(i)).float() for i in range(2)]
        return losses

    expected, got = train(lambda f: f), train(lambda f: braze.compile(f, fullgraph=True))
    for e, g in zip(expected, got, strict=True):
        torch.testing.assert_close(g, e, rtol=2e-2, atol=2e-2)


def test_accumulation():
    def train(compile):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def f(i, x, y):
            (F.mse_loss(model(x), y) / 3).backward()
            if (i + 1) % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()

        f = compile(f)
        for i in range(12):
            f(i, *data(i))
        return list(model.parameters())

    pair(train, fullgraph=True)
    assert braze.counters()["graphs"] <= 9 and not braze.counters()["skipped"]


@pytest.mark.parametrize("name", ["SGD", "LBFGS"])
def test_closures(name):
    def train(compile):
        model = net()
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)

        def f(x, y):
            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure)

        f = compile(f)
        return [f(*data(i)).detach() for i in range(3)] + [p.detach() for p in model.parameters()]

    pair(train)


@pytest.mark.parametrize("name", ["Adafactor", "Muon", "SparseAdam"])
def test_other_optimizers(name):
    def train(compile):
        torch.manual_seed(0)
        sparse = name == "SparseAdam"
        model = nn.Embedding(8, 4, sparse=True) if sparse else nn.Linear(4, 4, bias=False)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)

        def f(x):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

        f = compile(f)
        for i in range(3):
            f(torch.tensor([1, 3, i]) if sparse else data(i)[0])
        return list(model.parameters())

    pair(train)


def test_hooks_of_optimizers():
    def train(compile):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        seen = []
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(1.0))
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(2.0))
        f = compile(step)
        for i in range(3):
            f(model, optimizer, *data(i))
        return [torch.tensor(seen), *model.parameters()]

    pair(train)


def test_parameters_without_gradients():
    def train(compile):
        model = net()
        unused = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([*model.parameters(), unused], lr=0.01, weight_decay=0.1)
        f = compile(step)
        for i in range(3):
            f(model, optimizer, *data(i))
        return [unused.detach(), *[p.detach() for p in model.parameters()]]

    pair(train, fullgraph=True)
