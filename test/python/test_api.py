"""What users call: braze.compile in all its forms, counters, errors."""

import functools
import gc
import inspect
import subprocess
import sys
import weakref

import pytest
import torch

import braze


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    with torch.no_grad():
        yield


def affine(x, scale=2.0, *, shift=1.0):
    """Scales and shifts."""
    return x * scale + shift


def test_compile_wraps_a_function():
    f = braze.compile(affine)
    assert f.__name__ == "affine"
    assert f.__doc__ == "Scales and shifts."
    assert f.__wrapped__ is affine
    assert f.__module__ == __name__
    assert inspect.signature(f) == inspect.signature(affine)
    x = torch.randn(3, 4)
    torch.testing.assert_close(f(x), affine(x))
    torch.testing.assert_close(f(x, 3.0, shift=4.0), affine(x, 3.0, shift=4.0))
    assert braze.counters()["graphs"] == 2
    assert braze.counters()["skipped"] == {}


@pytest.mark.parametrize("decorator", [braze.compile, braze.compile(), braze.compile(fullgraph=True, dynamic=False)])
def test_decorators(decorator):
    @decorator
    def f(x):
        return torch.relu(x) + 1

    x = torch.randn(5)
    torch.testing.assert_close(f(x), torch.relu(x) + 1)


def test_methods_bind_as_functions_do():
    class Scaler:
        factor = 3.0

        @braze.compile
        def scale(self, x):
            return x * self.factor

        @staticmethod
        @braze.compile
        def twice(x):
            return x * 2

    a, x = Scaler(), torch.randn(4)
    torch.testing.assert_close(a.scale(x), x * 3)
    torch.testing.assert_close(Scaler.scale(a, x), x * 3)
    torch.testing.assert_close(a.twice(x), x * 2)
    assert a.scale.__self__ is a
    assert list(inspect.signature(a.scale).parameters) == ["x"]
    a.factor = 5.0
    torch.testing.assert_close(a.scale(x), x * 5)


def test_other_callables():
    x = torch.randn(4)
    torch.testing.assert_close(braze.compile(functools.partial(affine, scale=4.0))(x), affine(x, 4.0))

    class Call:
        def __call__(self, x):
            return x + 1

    torch.testing.assert_close(braze.compile(Call())(x), x + 1)


def test_compiling_twice_compiles_the_original():
    assert braze.compile(braze.compile(affine)).callee is affine
    module = torch.nn.Linear(2, 2)
    assert braze.compile(braze.compile(module))._orig_mod is module


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"model": 3}, TypeError),
        ({"model": affine, "backend": "nonesuch"}, ValueError),
        ({"model": affine, "backend": 3}, TypeError),
        ({"model": affine, "mode": "fastest"}, ValueError),
        ({"model": affine, "mode": 3}, TypeError),
        ({"model": affine, "fullgraph": 1}, TypeError),
        ({"model": affine, "dynamic": "yes"}, TypeError),
        ({"model": affine, "options": {"nonesuch": 1}}, ValueError),
        ({"model": affine, "options": {"fusion": 1}}, TypeError),
        ({"model": affine, "options": {"recompile_limit": 0}}, TypeError),
        ({"model": affine, "options": {"disable_passes": ["nonesuch"]}}, ValueError),
        ({"model": affine, "options": [1]}, TypeError),
        ({"model": affine, "mode": "default", "options": {"fusion": True}}, ValueError),
    ],
)
def test_wrong_arguments_are_named(arguments, error):
    with pytest.raises(error):
        braze.compile(arguments.pop("model"), **arguments)


def test_none_means_the_default():
    f = braze.compile(affine, backend=None, mode=None, dynamic=None, options=None)
    x = torch.randn(3)
    torch.testing.assert_close(f(x), affine(x))


@pytest.mark.parametrize("call", [lambda f: f(), lambda f: f(1, 2, 3), lambda f: f(1, nonesuch=2), lambda f: f(1, x=2)])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_arguments_that_do_not_bind_raise_the_functions_own_error(call, fullgraph):
    with pytest.raises(TypeError) as expected:
        call(affine)
    with pytest.raises(TypeError) as got:
        call(braze.compile(affine, fullgraph=fullgraph))
    assert str(got.value) == str(expected.value)


def test_breaks_are_counted_once():
    calls = []

    def f(x):
        calls.append(1)
        return x + x.sum().tolist()

    x = torch.randn(3)
    compiled = braze.compile(f)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x + x.sum())
    assert len(calls) == 3
    counters = braze.counters()
    assert counters["graphs"] == 2
    assert list(counters["breaks"].values()) == [1]
    assert counters["skipped"] == {}


def test_fullgraph_raises_with_the_users_line():
    def f(x):
        y = x * 2
        return y + y.sum().tolist()

    with pytest.raises(braze.Unsupported) as error:
        braze.compile(f, fullgraph=True)(torch.randn(3))
    assert isinstance(error.value, braze.BrazeError)
    assert error.value.reason
    assert error.value.file == __file__
    assert error.value.source_line.strip() == "return y + y.sum().tolist()"
    assert error.value.line == f.__code__.co_firstlineno + 2
    assert error.value.source_line.strip() in str(error.value)


def test_a_call_that_needs_gradients_gets_them():
    weight = torch.randn(3, requires_grad=True)
    f = braze.compile(affine)
    with torch.enable_grad():
        y = f(weight)
        assert y.requires_grad
        y.sum().backward()
        torch.testing.assert_close(weight.grad, torch.full((3,), 2.0))
        assert braze.counters()["graphs"] == 1
        x = torch.randn(3)
        torch.testing.assert_close(f(x), affine(x))   # grad mode is on, but nothing requires gradients
        assert braze.counters()["graphs"] == 2
    torch.testing.assert_close(f(weight), affine(weight))
    assert braze.counters()["graphs"] == 3


def test_errors_of_the_program_are_its_own():
    def f(x):
        return x.reshape(7)

    with pytest.raises(RuntimeError) as expected:
        f(torch.randn(3))
    with pytest.raises(RuntimeError) as got:
        braze.compile(f)(torch.randn(3))
    assert str(got.value) == str(expected.value)


def test_counters_and_reset():
    f = braze.compile(affine)
    x = torch.randn(3)
    ever = braze.compile_count()
    f(x)
    f(x)
    assert braze.counters() == {"graphs": 1, "breaks": {}, "skipped": {}}
    assert braze.compile_count() == ever + 1
    braze.reset()
    assert braze.counters() == {"graphs": 0, "breaks": {}, "skipped": {}}
    assert f.entry_count() == 0
    f(x)
    assert braze.counters()["graphs"] == 1
    assert braze.compile_count() == ever + 2


def test_the_recompile_limit_is_said_once(capfd):
    def f(x, n: int):
        return x * n

    compiled = braze.compile(f, dynamic=False, options={"recompile_limit": 2})
    x = torch.randn(3)
    for n in range(2, 8):
        torch.testing.assert_close(compiled(x, n), x * n)
    assert braze.counters()["graphs"] == 2
    assert braze.counters()["skipped"] == {"recompile limit reached": 4}
    said = [line for line in capfd.readouterr().err.splitlines() if "recompile limit" in line]
    assert len(said) == 1
    assert "n == " in said[0]


def test_disable():
    @braze.disable
    def eager(x):
        return x + 1

    def f(x):
        return eager(x) * 2

    x = torch.randn(3)
    torch.testing.assert_close(braze.compile(f)(x), (x + 1) * 2)
    assert braze.counters()["graphs"] == 1
    assert braze.compile(affine, disable=True) is affine


def test_explain():
    x = torch.randn(3)
    explanation = braze.explain(affine, x)
    assert explanation.graphs == 1
    assert explanation.skipped == {}
    assert "x" in explanation.guards
    torch.testing.assert_close(explanation.result, affine(x))
    assert not braze.is_compiling()


def test_configuration_rejects_unknown_names():
    with pytest.raises(AttributeError):
        braze.config.nonesuch = 1
    with pytest.raises(ValueError):
        braze.set_logs("nonesuch")


def test_logs_by_topic(capfd):
    braze.set_logs("guards,recompiles")
    try:
        f = braze.compile(affine)
        f(torch.randn(3))
        f(torch.randn(3, 4))
    finally:
        braze.set_logs("")
    err = capfd.readouterr().err
    assert "affine.__defaults__ is (2.0,)" in err
    assert "failing guard: x" in err


def test_a_dropped_function_leaves_nothing():
    def make():
        big = torch.randn(10)
        return lambda x: x + big

    f = make()
    compiled = braze.compile(f)
    compiled(torch.randn(10))
    alive = weakref.ref(f)
    del f, compiled
    gc.collect()
    assert alive() is None


def test_import_is_cheap():
    script = "import torch, time; t = time.perf_counter(); import braze, sys; print(time.perf_counter() - t);" \
             "assert 'sympy' not in sys.modules and 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_is_compiling_is_true_inside():
    def f(x):
        return x + 1 if braze.is_compiling() else x - 1

    x = torch.zeros(2)
    torch.testing.assert_close(braze.compile(f, fullgraph=True)(x), x + 1)
    torch.testing.assert_close(f(x), x - 1)
