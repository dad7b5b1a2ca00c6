"""State that compiled code depends on may change between calls; each change is seen."""

import threading
import types

import pytest
import torch

import braze


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    with torch.no_grad():
        yield


SCALE = 2.0
TABLE = {"a": 1.0, "b": 2.0}
STEPS = [1.0, 2.0]


def helper(x):
    return x + 1


class Settings:
    factor = 3.0

    def __init__(self):
        self.width = 4
        self.flag = True

    def act(self, x):
        return x * self.width


SETTINGS = Settings()


def check(compiled, function, *args, graphs=None):
    """Compiled and eager agree, twice; and how many graphs exist by then."""
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), function(*args))
    assert braze.counters()["skipped"] == {}
    if graphs is not None:
        assert braze.counters()["graphs"] == graphs


X = torch.randn(3, 4)


def test_globals(monkeypatch):
    def f(x):
        return x * SCALE + len(STEPS)

    c = braze.compile(f)
    check(c, f, X, graphs=1)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    check(c, f, X, graphs=2)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    check(c, f, X, graphs=2)
    monkeypatch.setitem(globals(), "UNRELATED", 1)
    check(c, f, X, graphs=2)
    monkeypatch.setattr("builtins.len", lambda x: 100)
    check(c, f, X)


def test_the_contents_of_lists_and_dicts(monkeypatch):
    def f(x):
        for step in STEPS:
            x = x * step
        for key, value in TABLE.items():
            x = x + value if key != "skip" else x
        return x

    c = braze.compile(f)
    check(c, f, X, graphs=1)
    STEPS.append(3.0)
    check(c, f, X, graphs=2)
    STEPS.pop()
    check(c, f, X, graphs=2)
    STEPS[0] = 5.0
    check(c, f, X, graphs=3)
    STEPS[0] = 1.0
    monkeypatch.setitem(TABLE, "b", 7.0)
    check(c, f, X, graphs=4)
    monkeypatch.undo()
    check(c, f, X, graphs=4)
    monkeypatch.setitem(TABLE, "c", 7.0)
    check(c, f, X, graphs=5)


def test_functions_that_are_called(monkeypatch):
    def f(x):
        return helper(x) * 2

    c = braze.compile(f)
    check(c, f, X, graphs=1)
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    check(c, f, X, graphs=2)
    monkeypatch.undo()
    check(c, f, X)
    monkeypatch.setattr(helper, "__code__", (lambda x: x * 10).__code__)
    check(c, f, X)


def test_closures_and_defaults():
    power = 2

    def f(x, scale=2.0, *, shift=1.0):
        return x ** power * scale + shift

    c = braze.compile(f, dynamic=False)
    check(c, f, X, graphs=1)
    power = 3
    check(c, f, X, graphs=2)
    f.__defaults__ = (5.0,)
    check(c, f, X, graphs=3)
    f.__kwdefaults__ = {"shift": 9.0}
    check(c, f, X, graphs=4)
    f.__kwdefaults__["shift"] = 10.0
    check(c, f, X, graphs=5)


def test_attributes_of_objects_and_classes(monkeypatch):
    def f(x, settings):
        return settings.act(x) * settings.factor if settings.flag else x

    c = braze.compile(f)
    settings = Settings()
    check(c, f, X, settings, graphs=1)
    check(c, f, X, Settings(), graphs=1)   # an equal object
    settings.width = 5
    check(c, f, X, settings, graphs=2)
    settings.factor = 7.0                  # hides the class attribute
    check(c, f, X, settings, graphs=3)
    del settings.factor
    settings.width = 4
    check(c, f, X, settings, graphs=3)
    monkeypatch.setattr(Settings, "factor", 11.0)
    check(c, f, X, settings, graphs=4)
    settings.flag = False
    check(c, f, X, settings, graphs=5)
    settings.flag = True
    monkeypatch.setattr(Settings, "act", lambda self, x: x - self.width)
    check(c, f, X, settings)
    settings.act = lambda x: x + 100       # an instance attribute hides a method
    check(c, f, X, settings)


def test_values_are_told_apart_by_type():
    def f(x, n):
        return x * n if isinstance(n, bool) else x + n

    c = braze.compile(f)
    for n in (1, True, 1.0, 0.0, -0.0, 1):
        check(c, f, X, n)
        assert torch.equal(torch.signbit(c(-X * 0, n)), torch.signbit(f(-X * 0, n)))


def test_tensor_properties():
    def f(x, y):
        return x + y

    c = braze.compile(f, dynamic=False)
    check(c, f, X, X, graphs=1)
    check(c, f, X, X.clone())
    check(c, f, X.double(), X.double())
    check(c, f, X.t(), X.t())
    check(c, f, X[:, :2], X[:, 1:3])
    check(c, f, X, X[0])
    check(c, f, X[:0], X[:0])
    check(c, f, X > 0, X < 0)


def test_a_changed_size_becomes_symbolic():
    def f(x):
        return torch.relu(x) * x.shape[0]

    c = braze.compile(f)
    check(c, f, torch.randn(3, 4), graphs=1)
    for n in (5, 6, 7, 50):
        check(c, f, torch.randn(n, 4), graphs=2)
    check(c, f, torch.randn(3, 4), graphs=2)
    check(c, f, torch.randn(7, 9), graphs=3)
    check(c, f, torch.randn(8, 10), graphs=3)
    check(c, f, torch.randn(1, 4))
    check(c, f, torch.randn(0, 4))


def test_dynamic_false_and_true():
    def f(x):
        return x * 2

    c = braze.compile(f, dynamic=False)
    for n in (3, 4, 5):
        check(c, f, torch.randn(n))
    assert braze.counters()["graphs"] == 3
    braze.reset()
    c = braze.compile(f, dynamic=True)
    for n in (3, 4, 5):
        check(c, f, torch.randn(n), graphs=1)


def test_torch_modes():
    def f(x):
        return x @ x.t()

    c = braze.compile(f)
    check(c, f, X, graphs=1)
    with torch.enable_grad():
        check(c, f, X, graphs=2)
    with torch.inference_mode():
        assert c(X).is_inference() == f(X).is_inference()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert c(X).dtype == f(X).dtype == torch.bfloat16
    check(c, f, X)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("kind", ["layer", "product", "pointwise"])
def test_first_use_in_inference_mode(kind, outer):
    """What is first read inside an inference mode is an ordinary tensor behind it."""
    layer = torch.nn.Linear(3, 3)
    use = {"layer": layer, "product": lambda x: x @ layer.weight, "pointwise": lambda x: x * layer.weight[0]}[kind]

    def f(x):
        with torch.inference_mode():
            best = use(x).argmax(1)
        return use(x).sum(), best
    x = torch.randn(4, 3)
    compiled = braze.compile(f)
    for _ in range(2):
        with torch.inference_mode(outer):
            loss, best = compiled(x)
            expected = f(x)
        assert torch.equal(best, expected[1]) and loss.requires_grad == expected[0].requires_grad == (not outer)
        if not outer:
            layer.zero_grad()
            loss.backward()
            got = layer.weight.grad
            layer.zero_grad()
            expected[0].backward()
            torch.testing.assert_close(got, layer.weight.grad)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_inference_mode_of_results(outer, inner):
    def f(x):
        with torch.inference_mode(inner):
            y = x * 2
        return y, x * 3, x.t(), x

    with torch.inference_mode(outer):
        got, want = braze.compile(f)(X), f(X)
    torch.testing.assert_close(got, want)
    assert [t.is_inference() for t in got] == [t.is_inference() for t in want]


def test_default_dtype():
    def f(x):
        return x + torch.ones(4)

    c = braze.compile(f)
    check(c, f, X)
    torch.set_default_dtype(torch.float64)
    try:
        assert c(X).dtype == f(X).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_aliases():
    def f(x, y):
        x.add_(1)
        return y * 2

    c = braze.compile(f)
    for share in (False, True, False):
        a, b = torch.ones(3), torch.ones(3)
        want = f(a, a if share else b)
        a, b = torch.ones(3), torch.ones(3)
        torch.testing.assert_close(c(a, a if share else b), want)
        torch.testing.assert_close(a, torch.full((3,), 2.0))


def test_keyword_order_and_shapes_of_calls():
    def f(x, **kwargs):
        for name, value in kwargs.items():
            x = x * 2 + value if name == "a" else x - value
        return x

    c = braze.compile(f)
    for kwargs in ({}, {"a": 1.0}, {"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}, {"b": 1.0}):
        torch.testing.assert_close(c(X, **kwargs), f(X, **kwargs))
    assert braze.counters()["skipped"] == {}


def test_modules_are_watched(monkeypatch):
    plugin = types.ModuleType("plugin")
    plugin.gain = 2.0
    monkeypatch.setitem(globals(), "plugin", plugin)

    def f(x):
        return x * globals()["plugin"].gain if False else x * plugin_gain()

    def plugin_gain():
        return plugin.gain

    c = braze.compile(f)
    check(c, f, X)
    plugin.gain = 3.0
    check(c, f, X)


def test_what_torch_compile_notes_of_new_modules_is_no_matter():
    """Once torch.compile has run, each of its compilations counts up what the constructors of modules write down."""
    class Make(torch.nn.Module):
        def forward(self, x):
            return torch.nn.Hardtanh(0.0, 2.0)(x)

    compiled = braze.compile(Make(), fullgraph=True)
    for scale in (2.0, 3.0, 4.0):
        torch.compile(lambda x, scale=scale: x * scale, backend="eager")(torch.ones(2))
        assert compiled(torch.tensor([-1.0, 5.0])).tolist() == [0.0, 2.0]
    assert braze.counters()["graphs"] <= 2 and braze.counters()["skipped"] == {}


def test_many_threads_agree():
    def f(x, n):
        return torch.relu(x) * n

    c = braze.compile(f)
    errors = []

    def work(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for i in range(20):
                    x = torch.randn(3, 4 + i % 3, generator=generator)
                    torch.testing.assert_close(c(x, i % 2), f(x, i % 2))
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
