"""Programs that can't be one graph: compiled in parts, with the same results and effects as eager execution."""
import sys
import threading
import weakref

import pytest
import torch

import braze


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    yield
    braze.reset()


def compare(program, *calls, graphs=None, backend="eager"):
    """Each call twice; then what was counted."""
    compiled = braze.compile(program, backend=backend)
    for _ in range(2):
        for args in calls:
            copies = [[a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2)]
            expected, got = program(*copies[0]), compiled(*copies[1])
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
            tensors = [[a for a in copy if isinstance(a, torch.Tensor)] for copy in copies]
            torch.testing.assert_close(tensors[1], tensors[0], rtol=0, atol=0)
    counters = braze.counters()
    assert counters["skipped"] == {}
    if graphs is not None:
        assert counters["graphs"] == graphs
    return counters


def test_branch_on_data():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    counters = compare(f, (torch.ones(3),), (-torch.ones(3),), graphs=3)
    assert len(counters["breaks"]) == 1
    assert sum(counters["breaks"].values()) == 1


def test_numbers_from_tensors():
    def f(x):
        n = int(x.sum().item())
        return x.new_zeros(n + 1) + x[0], n, x.tolist(), len("x" * n)

    compare(f, (torch.tensor([1.0, 2.0]),), (torch.tensor([0.0, 1.0]),))


def test_unknown_natives_in_between():
    import random

    def f(x):
        y = x.sin()
        random.seed(3)
        k = random.random()
        return y * k + x.cos()

    counters = compare(f, (torch.randn(4),))
    assert counters["graphs"] == 2


def test_printed_tensors(capsys):
    def f(x):
        y = x + 1
        print(y)
        return y * 2

    compiled = braze.compile(f)
    x = torch.zeros(2)
    assert torch.equal(compiled(x), f(x))
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["tensor([1., 1.])"] * 2


def test_in_callees_at_any_depth():
    def third(x, k):
        y = x * k
        return y.exp() if y.mean() > 0 else y.abs()

    def second(x, k):
        local = [x, k]
        return third(x + 1, k=k) + len(local)

    def first(x, ks):
        return [second(x, k) - 1 for k in ks]

    def f(x):
        before = x.sin()
        return before + sum(first(x, (1, -2)))

    compare(f, (torch.ones(3),), (-torch.ones(3),))


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        y = self.linear(x)
        if y.sum() > 1e6:
            return x
        return x + y.relu()


def test_modules():
    model = torch.nn.Sequential(Block(4), Block(4), Block(4)).eval()
    compiled = braze.compile(model, backend="eager")
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 4)
            torch.testing.assert_close(compiled(x), model(x))
    assert braze.counters()["skipped"] == {}


def test_loops_converge():
    def f(x, layers):
        for layer in layers:
            x = layer(x)
            if x.max() > 100:
                x = x / 10
        return x

    layers = [torch.nn.Linear(3, 3) for _ in range(6)]
    with torch.no_grad():
        compare(f, (torch.randn(2, 3), layers))
        graphs = braze.counters()["graphs"]
        assert graphs <= 6
        compiled = braze.compile(f, backend="eager")
        compiled(torch.randn(2, 3), layers)
        before = braze.counters()["graphs"]
        compiled(torch.randn(2, 3), [*layers, *layers])
        assert braze.counters()["graphs"] <= before + 1   # the first, which knows the length


def test_while_loops():
    def f(x):
        steps = []
        while x.norm() > 1:
            x = x / 2
            steps.append(x.norm().item())
            if len(steps) > 5:
                break
        return x, steps

    compare(f, *[(torch.ones(4) * k,) for k in (0.1, 3.0, 500.0)])


def test_torch_modes():
    def f(x):
        with torch.no_grad():
            y = x * 2
            if y.sum() > 0:
                y = y + 1
            inside = torch.is_grad_enabled()
        return y, inside, torch.is_grad_enabled()

    compare(f, (torch.ones(2),), (-torch.ones(2),))
    assert torch.is_grad_enabled()

    def g(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            if y.sum() > 0:
                y = y @ y
            return y

    compare(g, (torch.ones(4, 4),), (-torch.eye(4),))
    assert not torch.is_autocast_enabled("cpu")


def test_managers_and_handlers():
    log = []

    class Timer:
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, kind, value, tb):
            log.append(kind and kind.__name__)
            return kind is ValueError

    def f(x):
        try:
            for i in range(3):
                with Timer():
                    x = x - i
                    if x.min().item() < -1:
                        raise ValueError(i)
                    x = x * 2
        finally:
            log.append("done")
        return x, i

    compiled = braze.compile(f)
    for x in (torch.ones(2), torch.ones(2) * 9):
        log.clear()
        expected, expected_log = f(x), list(log)
        log.clear()
        torch.testing.assert_close(compiled(x), expected)
        assert log == expected_log


def test_errors_after_a_break_are_the_programs_own():
    def inner(x):
        if x.sum() > 0:
            raise KeyError("positive")
        return x

    def f(x):
        y = x + 1
        return inner(y)

    compiled = braze.compile(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="positive") as got:
            compiled(torch.ones(2))
        names = [e.name for e in got.traceback]
        assert names[-2:] == ["f", "inner"]
    torch.testing.assert_close(compiled(-2 * torch.ones(2)), -torch.ones(2))


def test_mutations_before_and_after_a_break():
    state = {"n": 0, "items": []}

    def opaque(x):
        state["items"].append(x.tolist())
        return state["n"]

    def f(x):
        state["n"] += 1
        x.add_(1)
        n = opaque(x)
        x.mul_(n)
        state["n"] += 10
        return x + opaque(x)

    def run(call):
        state["n"], x = 0, torch.ones(2)
        state["items"].clear()
        return call(x), x, dict(state), list(state["items"])

    compiled = braze.compile(f)
    expected = run(f)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), expected)


def test_views_stay_views_over_a_break():
    def f(x):
        z = x * 2
        row, given = z[0], x[1]
        n = z.sum().item()
        row.add_(n)
        given.mul_(2)
        return z, row, x

    compare(f, (torch.ones(2, 3),), (torch.zeros(2, 3),))


def test_handlers_see_errors_of_later_graphs():
    log = []

    def f(x, i):
        log.append("begin")
        try:
            if x.sum() > 0:
                log.append("positive")
            return x.index_select(0, i) + 1
        finally:
            log.append("end")

    compiled = braze.compile(f, backend="eager")
    x, good, bad = torch.ones(3), torch.tensor([1, 2]), torch.tensor([7, 0])
    torch.testing.assert_close(compiled(x, good), f(x, good))
    for call in (f, compiled):
        log.clear()
        with pytest.raises(IndexError):
            call(x, bad)
        assert log == ["begin", "positive", "end"]


def test_closures_and_fresh_objects_survive():
    def f(x):
        total = 0.0
        kept = {"list": [x], "self": None}
        kept["self"] = kept

        def add(v):
            nonlocal total
            total += v.item()
            return kept

        for row in (x[0], x[1]):
            assert add(row) is kept
        kept["list"].append(total)
        return kept["self"] is kept, kept["list"]

    compare(f, (torch.tensor([1.0, 2.0]),))


def test_disabled_functions_run_eagerly():
    seen = []

    @braze.disable
    def eager(x):
        seen.append((type(x), braze.is_compiling()))
        return x + 1

    @torch.compiler.disable
    def also_eager(x):
        return x * 3

    def f(x):
        return also_eager(eager(x * 2) * 2)

    counters = compare(f, (torch.randn(3),))
    assert all("marked to run eagerly" in reason for reason in counters["breaks"])
    assert len(counters["breaks"]) == 2
    assert set(seen) == {(torch.Tensor, False)}


def test_functions_allowed_in_the_graph():
    import random

    @braze.allow_in_graph
    def noisy(x):
        random.random()
        return x * 2

    def f(x):
        return noisy(x + 1) - 1

    x = torch.randn(3)
    torch.testing.assert_close(braze.compile(f, fullgraph=True)(x), f(x))


def test_fullgraph_says_where():
    def f(x):
        return x.tolist() + [1]

    with pytest.raises(braze.Unsupported) as error:
        braze.compile(f, fullgraph=True)(torch.ones(1))
    assert error.value.source_line == "return x.tolist() + [1]"
    assert error.value.line == f.__code__.co_firstlineno + 1


def test_explain_shows_breaks():
    def f(x):
        y = x + 1
        return y * y.sum().tolist()

    explanation = braze.explain(f)(torch.ones(2))
    assert explanation.graphs == 2
    assert len(explanation.breaks) == 1
    assert "y * y.sum().tolist()" in explanation.breaks[0]
    assert "graph break" in str(explanation)


def test_breaks_are_logged_once(capfd):
    braze.set_logs("graph_breaks")
    try:
        compiled = braze.compile(lambda x: x * x.sum().tolist())
        for _ in range(3):
            compiled(torch.ones(2))
    finally:
        braze.set_logs("")
    assert capfd.readouterr().err.count("graph break in") == 1


def test_replaced_callees_are_seen():
    def helper(x):
        return x + 1

    scope = {"helper": helper}
    source = "def f(x):\n    y = helper(x)\n    n = y.sum().item()\n    return helper(y) * n\n"
    exec(source, scope)
    f = scope["f"]
    compiled = braze.compile(f, backend="eager")
    x = torch.ones(2)
    torch.testing.assert_close(compiled(x), f(x))
    scope["helper"] = lambda x: x - 5
    torch.testing.assert_close(compiled(x), f(x))


def test_nothing_is_kept_alive():
    class Thing:
        pass

    def f(x, thing):
        held = [thing, x]
        n = x.sum().item()
        return held[1] * n

    compiled = braze.compile(f, backend="eager")
    x, thing = torch.ones(2), Thing()
    compiled(x, thing)
    before = sys.getrefcount(x), sys.getrefcount(thing)
    for _ in range(5):
        compiled(x, thing)
    assert (sys.getrefcount(x), sys.getrefcount(thing)) == before
    dead = weakref.ref(thing)
    del thing
    assert dead() is None


def test_threads():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y * y.max().item()

    compiled = braze.compile(f, backend="eager")
    wrong = []

    def work(k):
        for i in range(20):
            x = torch.ones(3) * ((k + i) % 5 - 2)
            if not torch.equal(compiled(x), f(x)):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
