"""Objects of the type system and of the standard library that programs meet by the way."""
import typing
import weakref
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn

import braze

P, T = typing.ParamSpec("P"), typing.TypeVar("T")

ANNOTATIONS = {
    "generic": lambda: (list[int], dict[str, list[int]], tuple[int, ...], Iterable[T], type[T]),
    "callable": lambda: (Callable[..., typing.Any], Callable[P, T], Callable[[int, str], T]),
    "union": lambda: (int | None, torch.Tensor | tuple[torch.Tensor, ...], int | str | list[int], T | None),
    "typing": lambda: (typing.Optional[int], typing.Union[int, str], typing.List[T], typing.Literal["a"]),
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_annotations(name):
    make = ANNOTATIONS[name]
    seen = []

    def f(x):
        def inner(a: make()) -> make():
            return a * 2
        return inner(x)
    for run in (f, braze.compile(f, fullgraph=True)):
        seen.append(run(torch.ones(2)))
    assert torch.equal(*seen) and braze.counters()["graphs"] >= 1


class Version:
    def __init__(self, *numbers):
        self.numbers = numbers

    def __eq__(self, other):
        return isinstance(other, Version) and self.numbers == other.numbers


def test_comparisons_of_sequences_of_objects():
    def f(x, other):
        mine = [Version(1, 2), Version(3)]
        pair = (Version(1), 2)
        return x + (mine == other) + 10 * (mine != other) + 100 * (pair == (Version(1), 2)) + 1000 * (mine == mine[:1])
    compiled = braze.compile(f, fullgraph=True)
    x = torch.zeros(1)
    for other in ([Version(1, 2), Version(3)], [Version(1, 2), Version(4)], [Version(1, 2)], [Version(1, 2), Version(3)]):
        assert torch.equal(compiled(x, other), f(x, other))


def test_weak_references():
    class Holder:
        pass

    def f(h, x):
        return x * h.value.scale if h.ref() is h.value else x - 1

    def value(scale):
        out = Holder()
        out.scale = scale
        return out
    compiled = braze.compile(f)
    h, x = Holder(), torch.ones(2)
    h.value = value(2)
    h.ref = weakref.ref(h.value)
    for _ in range(2):
        assert torch.equal(compiled(h, x), x * 2)
    first, h.value = h.value, value(5)
    assert torch.equal(compiled(h, x), x - 1)
    h.value = first
    assert torch.equal(compiled(h, x), x * 2)
    h.value = value(3)
    h.ref = weakref.ref(h.value)
    assert torch.equal(compiled(h, x), x * 3)
    del first
    h.value = value(7)
    assert h.ref() is None
    assert torch.equal(compiled(h, x), x - 1)


def test_format_with_more_keywords_than_it_names():
    class Holder:
        pass

    def f(h, x):
        return x + len("{name} {size:>4} {{}}".format(**h.__dict__))
    h = Holder()
    h.name, h.size, h.tensor = "a", 3, torch.ones(2)
    compiled = braze.compile(f, fullgraph=True)
    for h.name in ("a", "bcd", "a"):
        assert torch.equal(compiled(h, torch.ones(2)), f(h, torch.ones(2)))


def test_named_results_made_anew():
    def f(x):
        out = x.max(-1)
        return type(out)([out.values * 2, out.indices])
    x = torch.randn(3, 4)
    assert torch.equal(braze.compile(f, fullgraph=True)(x).values, f(x).values)




def test_assignments_that_are_undone():
    """Nobody sees them, so that what stands in between need not outlive the call."""
    def f(d, x):
        kept = d["a"]
        d["a"] = x * 2
        y = d["a"] + 1
        d["a"] = kept
        d["b"] = 1
        d["b"] = 2
        d["c"] = 3
        del d["c"]
        d["d"] = x
        d["d"] = y
        return y
    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        tables, x = [], torch.randn(2)
        for run in (f, compiled):
            first = torch.ones(1)
            d = {"a": first, "b": 0}
            tables.append((run(d, x), d))
            assert d["a"] is first
        (e, eager), (g, got) = tables
        assert torch.equal(e, g) and list(eager) == list(got) and got["b"] == 2 and torch.equal(got["d"], eager["d"])


def test_assignments_that_something_sees(capsys):
    def f(d, x):
        kept = d["a"]
        d["a"] = 5
        print(d)
        d["a"] = kept
        print(d)
        return x + 1
    d = {"a": [1]}
    braze.compile(f)(d, torch.ones(1))
    assert capsys.readouterr().out == "{'a': 5}\n{'a': [1]}\n"


def test_exchanged_parameters():
    net = nn.Linear(2, 2)

    def f(x, w):
        kept = net._parameters["weight"]
        net._parameters["weight"] = w
        try:
            return net(x)
        finally:
            net._parameters["weight"] = kept
    x, w, weight = torch.randn(3, 2), torch.randn(2, 2), net.weight
    torch.testing.assert_close(braze.compile(f, fullgraph=True)(x, w), f(x, w))
    assert net.weight is weight
