"""Python's standard library inside compiled functions."""

import re

import pytest
import torch

import braze

X = torch.ones(2)
PATTERN = re.compile("(a+)(b*)")


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    yield


def show(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [show(item) for item in value]
    return value


def check(make, *calls, fullgraph=True):
    """make() gives a function; both sides get the same calls."""
    eager, compiled = make(), braze.compile(make(), fullgraph=fullgraph)
    for args in calls:
        assert show(compiled(*args)) == show(eager(*args))
    assert braze.counters()["skipped"] == {}


@pytest.mark.parametrize("f", [
    lambda x, s: x + len(re.sub("a+q", "b", s)),
    lambda x, s: (x, PATTERN.search(s).group(1), PATTERN.match(s).span(2), PATTERN.search(s).re is PATTERN),
    lambda x, s: (x * len(re.findall("[a-z]+", s)), re.split("q", s), re.sub(r"(b)", r"<\1>", s), re.search("z", s)),
    lambda x, s: [x * m.start() for m in re.finditer("b", s)],
    lambda x, s: (x, re.fullmatch("a.*", s).lastindex, PATTERN.pattern, PATTERN.subn("", s)),
], ids=["sub", "match", "functions", "finditer", "attributes"])
def test_regular_expressions(f):
    re.purge()
    check(lambda: f, (X, "aaqb"), (X, "aabbq"), (X, "aaqb"))


def test_replacement_by_a_function():
    check(lambda: lambda x, s: (x + 1, re.sub("[0-9]", lambda m: str(int(m.group()) + 1), s)), (X, "12"), (X, "3"),
          fullgraph=False)


class Key:
    pass


@pytest.mark.parametrize("keys", [
    [1, 2, "a", 1.0],
    [Key(), Key()],
    [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)],
    [torch.zeros(1), torch.zeros(2)],
], ids=["constants", "objects", "modules", "tensors"])
def test_memo_dicts(keys):
    """Tuples as keys, filled by the call: each state of the dict has an entry of its own."""
    def make():
        memo = {}

        def f(x, key, n):
            found = (type(key), key, (n, key))
            if found in memo:
                return x + memo[found], len(memo)
            memo[found] = len(memo) * 10
            return x - memo[found], len(memo)

        return f

    check(make, *[(X, key, n) for key in [*keys[:2], *keys[:2]] for n in (1, 1)], (X, keys[1], 2), (X, keys[-1], 1))


def test_divergences_of_distributions():
    normal = torch.distributions.Normal

    def f(x):
        return torch.distributions.kl_divergence(normal(x, 1.0, validate_args=False), normal(0.0, 2.0, validate_args=False))

    torch.distributions.kl._KL_MEMOIZE.clear()
    check(lambda: f, (X,), (X * 2,))


def test_natives_that_call_python_run_once():
    """The native function is broken off before the program's function has begun."""
    def make():
        log = []

        class Index:
            def __index__(self):
                log.append("index")
                return 1

        def f(x):
            items = [1, 2]
            items.insert(Index(), 3)
            return x, items, items.pop(Index()), len(log)

        return f

    check(make, (X,), (X,), fullgraph=False)


@pytest.mark.parametrize("reverse", [False, True])
def test_comparisons_of_a_sort(reverse):
    def make():
        log = []

        class Item:
            def __init__(self, value):
                self.value = value

            def __lt__(self, other):
                log.append((self.value, other.value))
                return self.value < other.value

        def f(x, values):
            items = [Item(v) for v in values]
            items.sort(reverse=reverse)
            return x, [i.value for i in items], list(log)

        return f

    check(make, *[(X, values) for values in ((3, 1, 2, 5, 4, 4, 0), (5, 4, 4, 1), (1, 2, 2, 3), (1,))])
