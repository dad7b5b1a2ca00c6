"""What a compiled function changes outside, and reads after it has changed it: as in eager, call for call."""

import collections
import copy
import dataclasses
import types

import pytest
import torch

import braze

X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    yield


def show(value):
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.is_inference()
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value), [show(item) for item in value], getattr(value, "maxlen", None)
    if isinstance(value, dict):
        return type(value), [(key, show(item)) for key, item in value.items()]
    return value


def check(make, calls, skipped=False):
    """make() gives a function and something to observe; both sides see the same calls."""
    eager, eager_state = make()
    function, state = make()
    compiled = braze.compile(function, fullgraph=True)
    for args in calls:
        assert show(compiled(*copy.deepcopy(args))) == show(eager(*copy.deepcopy(args)))
        assert show(state()) == show(eager_state())
    if not skipped:
        assert braze.counters()["skipped"] == {}


def test_class_attributes():
    def make():
        class Base:
            made = 0
            names = ()

            @classmethod
            def of(cls, x):
                cls.made += 1
                Base.names = (*Base.names, cls.__name__)
                return cls.made + Base.made, x * cls.made

        class Derived(Base):
            pass

        def f(x):
            return Base.of(x), Derived.of(x), Derived.of(x), Base().made, Derived().made

        return f, lambda: (Base.made, Derived.made, Derived.__dict__.get("made"), Base.names, Derived.names)

    check(make, [(X,)] * 4)


def test_class_attribute_written_from_outside():
    class C:
        scale = 1

    def f(x):
        C.scale = C.scale * 2
        return x * C.scale

    compiled = braze.compile(f, fullgraph=True)
    for scale in (1, 5, 1):
        C.scale = scale
        assert compiled(X).tolist() == (X * (2 * scale)).tolist()
        assert C.scale == 2 * scale


def test_empty_slots():
    class Point:
        __slots__ = ("x", "tag")

        def __init__(self, x):
            self.x = x

    def f(t, p):
        had = hasattr(p, "tag")
        p.tag = p.x + 1
        return t * p.tag, had

    compiled = braze.compile(f, fullgraph=True)
    p = Point(1)
    assert show(compiled(X, p)) == show((X * 2, False))
    assert p.tag == 2
    assert show(compiled(X, p)) == show((X * 2, True))
    assert show(compiled(X, Point(1))) == show((X * 2, False))


DEQUE = collections.deque([1.0, 2.0], maxlen=3)


def test_deques():
    def make():
        window = collections.deque([0.0], maxlen=3)

        def f(x, v):
            window.append(v)
            window.appendleft(-v)
            window.rotate(1)
            window.extend([x, v + 1])
            last = window.pop()
            window[0] = v * 10
            return sum(window), len(window), window[0], list(window), last, bool(window)

        return f, lambda: window

    check(make, [(X, float(v)) for v in (1, 2, 3, 4)])


def test_deques_that_are_read():
    def f(x, d):
        total = x
        for item in d:
            total = total * item
        return total, d[1], len(d), d.maxlen

    compiled = braze.compile(f, fullgraph=True)
    for d in ([1, 2], [3, 2], [3, 4, 5], [X, 2]):
        for maxlen in (None, 5):
            assert show(compiled(X, collections.deque(d, maxlen))) == show(f(X, collections.deque(d, maxlen)))


def test_new_deques():
    def f(x, v):
        d = collections.deque([v, x], 4)
        d.extendleft([v + 1, 2])
        for item in list(d):
            x = x + item
        return x, d, d.popleft()

    compiled = braze.compile(f, fullgraph=True)
    for v in (1, 2, 3, 4.5):
        assert show(compiled(X, v)) == show(f(X, v))


def test_default_dicts():
    def make():
        seen = collections.defaultdict(list)
        counts = collections.defaultdict(int, a=1)

        def f(x, key):
            seen[key].append(x + 1)
            counts[key] += 2
            counts["a"] += 1
            return counts[key], len(counts), seen[key][-1], dict(counts), "b" in counts, repr(counts)

        return f, lambda: (seen, counts)

    check(make, [(X, key) for key in "abab"])


def test_counters():
    def make():
        seen = collections.Counter(a=2)

        def f(x, key):
            seen[key] += 3
            seen.update("ab")
            seen.subtract({"b": 5})
            del seen["a"]
            fresh = collections.Counter("abca")
            fresh.update(seen)
            return x * seen[key], seen["none"], len(seen), seen.most_common(1), sorted(fresh.items()), sum(seen.values())

        return f, lambda: seen

    check(make, [(X, key) for key in "cdcd"])


def test_ordered_dicts():
    def make():
        order = collections.OrderedDict(a=1, b=2, c=3)

        def f(x, key):
            order.move_to_end(key)
            order[key] += 1
            order.move_to_end("c", last=False)
            first = list(order)
            order["new"] = len(order)
            taken = order.popitem(), order.popitem(last=False)
            order[taken[1][0]] = taken[1][1] * 2
            return x * order[key], first, taken, list(order.items()), next(reversed(order))

        return f, lambda: order

    check(make, [(X, key) for key in "abab"])


class Table(dict):
    """Its own methods are the program's, around the storage of a dict."""

    def __setitem__(self, key, value):
        super().__setitem__(key.upper(), value)

    def keys(self):
        raise AssertionError("not for reading the storage")


def test_subclasses_of_dicts():
    def make():
        table = Table()

        def f(x, key):
            table[key] = table.get("A", 0) + 1
            table.setdefault("q", []).append(key)
            return x + table[key.upper()], len(table), "q" in table, table.pop("Z", None)

        return f, lambda: dict(table.items())

    check(make, [(X, key) for key in "abaz"])


def test_attributes_of_modules():
    def make():
        module = types.ModuleType("settings")
        module.count, module.gone = 1, True
        exec("def next_count():\n    global count\n    count += 1\n    return count", module.__dict__)

        def f(x):
            module.count += 10
            before = module.count, hasattr(module, "gone"), hasattr(module, "made")
            if hasattr(module, "gone"):
                del module.gone
            module.made = module.next_count() + 1
            return x * module.count, before, hasattr(module, "gone"), module.made, getattr(module, "none", 3)

        return f, lambda: {k: v for k, v in vars(module).items() if k in ("count", "made", "gone")}

    check(make, [(X,)] * 3)


def test_repr_of_dataclasses():
    @dataclasses.dataclass
    class Inner:
        a: int = 1

    @dataclasses.dataclass
    class Outer:
        inner: Inner
        names: tuple = ("x",)

    def f(x, n):
        return x + n, repr(Outer(Inner(n))), str(Inner(2))

    compiled = braze.compile(f, fullgraph=True)
    for n in (1, 2, 3):
        assert show(compiled(X, n)) == show(f(X, n))


def test_inference_outputs():
    def f(x):
        with torch.inference_mode():
            y = x * 2
            z = y[1:]
        return y, z, x + 1, y.is_inference(), y

    compiled = braze.compile(f, fullgraph=True)
    for x in (X, X.clone().requires_grad_()):
        given, expected = compiled(x), f(x)
        assert show(given[:3]) == show(expected[:3]) and given[3]
        assert given[4] is given[0] and given[1].data_ptr() == given[0].data_ptr() + 4
        assert given[2].requires_grad == x.requires_grad
        with pytest.raises(RuntimeError, match="[Ii]nference"):
            given[0].mul_(2)


def test_storage_offset():
    def f(x):
        return x + x.storage_offset(), x[1:].storage_offset()

    compiled = braze.compile(f, fullgraph=True)
    base = torch.arange(12.0)
    for x in (base[0:3], base[4:7], base[5:8], base[4:7]):
        assert show(compiled(x)) == show(f(x))


def test_arguments_of_exceptions():
    def f(x, n):
        try:
            raise KeyError(n)
        except KeyError as error:
            return x + error.args[0]

    compiled = braze.compile(f, fullgraph=True)
    for n in (1.5, 2.5, 2, 3, X):
        assert show(compiled(X, n)) == show(f(X, n))
