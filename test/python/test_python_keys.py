"""Dicts whose keys are hashed or compared by Python code: frozen dataclasses, enums, objects with __eq__, and tuples of such."""
import dataclasses
import enum

import braze
import pytest
import torch


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    index: int = 0


class Level(enum.Enum):
    LOW = 1
    HIGH = 2

    def __hash__(self):
        return self.value * 7


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Point) and self.x == other.x

    def __hash__(self):
        return hash(self.x) % 3


X = torch.arange(4.0)


def check(make, calls, fullgraph=True):
    """`make` gives a function of a tensor and its state; `calls` are what happens to the state before each call."""
    f, state = make()
    g, own = make()
    compiled = braze.compile(g, fullgraph=fullgraph)
    for change in calls:
        change(state)
        change(own)
        torch.testing.assert_close(compiled(X), f(X))
        assert repr(own) == repr(state)


def nothing(state):
    pass


def test_values_are_found_and_changed_values_are_seen():
    def make():
        table = {Key("a"): 2.0, Key("b", 1): 3.0}
        return lambda x: x * table[Key("b", 1)] + table[Key("a")], table

    check(make, [nothing, nothing, lambda t: t.update({Key("a"): 5.0}), nothing])


def test_the_key_itself_changes():
    def make():
        table, state = {Key("a"): 2.0, Key("b"): 3.0}, [Key("a")]
        return lambda x: x * table[state[0]], state

    check(make, [nothing, lambda s: s.__setitem__(0, Key("b")), lambda s: s.__setitem__(0, Key("a")), nothing])


def test_absent_keys_and_errors():
    def make():
        table = {Key("a"): 2.0}
        def f(x):
            y = x + 1 if Key("b") in table else x - 1
            try:
                table[Key("c")]
            except KeyError as error:
                y = y * (error.args[0].index + 3)
            return y * table.get(Key("a"), 9.0) + table.get(Key("d"), 4.0)
        return f, table

    check(make, [nothing, nothing, lambda t: t.update({Key("b"): 1.0}), lambda t: t.pop(Key("b")), nothing])


def test_entries_are_added_replaced_and_removed():
    def make():
        table = {Key("a"): 2.0}
        def f(x):
            table[Key("n", len(table))] = float(len(table))
            table[Key("a")] += 1.0
            if len(table) > 3:
                del table[Key("n", 1)]
            return x * sum(table.values())
        return f, table

    check(make, [nothing] * 5)


def test_the_key_that_was_first_stays():
    def make():
        first = Key("a")
        table = {first: 1.0}
        def f(x):
            table[Key("a")] = 2.0
            return x * table[Key("a")]
        return f, (table, first)

    f, (table, first) = make()
    braze.compile(f, fullgraph=True)(X)
    assert next(iter(table)) is first and table == {first: 2.0}


def test_fresh_dicts_and_tuples_of_keys():
    def make():
        def f(x):
            memo = {}
            for i in range(4):
                key = (Key("k", i % 2), "t")
                memo[key] = memo.get(key, 0) + i
            return x * memo[Key("k", 0), "t"] - memo[Key("k", 1), "t"], list(memo.items())
        return lambda x: f(x)[0], f(X)[1]

    check(make, [nothing, nothing])


def test_enums_with_a_hash_of_their_own():
    def make():
        table = {Level.LOW: 1.5, Level.HIGH: 2.5}
        return lambda x: x * table[Level.HIGH] - table[Level.LOW], table

    check(make, [nothing, lambda t: t.__setitem__(Level.HIGH, 7.0), nothing])


def test_keys_whose_hashes_collide():
    """Different keys with equal hashes: the comparisons that CPython would make depend on the table, so the call breaks there."""
    def make():
        table = {Point(0): 1.0, Point(3): 2.0, Point(1): 3.0}
        return lambda x: x * table[Point(3)] + table[Point(1)], [sorted(table.values())]

    check(make, [nothing, nothing], fullgraph=False)


def test_a_key_that_changed_inside_the_table_is_not_found():
    def make():
        key = Point(1)
        table = {key: 1.0}
        return lambda x: x * table.get(Point(2), 5.0), key.__dict__

    check(make, [nothing, lambda s: s.__setitem__("x", 2), nothing], fullgraph=False)


def test_errors_of_hash_and_eq():
    class Bad:
        def __hash__(self):
            raise ValueError("no hash")

        def __eq__(self, other):
            return self is other

    table = {}

    def f(x):
        try:
            table[Bad()] = 1
        except ValueError as error:
            return x + len(str(error))
        return x

    torch.testing.assert_close(braze.compile(f)(X), f(X))
    assert table == {}


@pytest.mark.parametrize("method", ["pop", "setdefault", "update", "in_place_or", "from_pairs"])
def test_methods_of_dicts(method):
    def make():
        table = {Key("a"): 2.0, Key("b"): 3.0}
        def f(x):
            if method == "pop":
                return x * table.pop(Key("a"), 1.0)
            if method == "setdefault":
                return x * table.setdefault(Key("c"), 4.0) + table.setdefault(Key("a"), 0.0)
            if method == "update":
                table.update({Key("b"): 6.0, Key("d"): 7.0})
            elif method == "in_place_or":
                nonlocal_table = table
                nonlocal_table |= {Key("a"): 8.0}
            else:
                return x * sum(dict([(Key("p"), 1.0), (Key("p"), 2.0)]).values())
            return x * sum(table.values())
        return f, table

    check(make, [nothing, nothing, nothing], fullgraph=False)


def test_a_field_that_changes_between_calls():
    def make():
        table = {}
        def f(x, key):
            if key in table:
                table[key] += 1
            else:
                table[key] = 1
            return x * table[key], hash((key.index, "a")) == hash((int(key.index), "a"))
        return f, table

    eager, expected = make()
    f, table = make()
    compiled = braze.compile(f, fullgraph=True)
    for index in (0, 0, 1, 0, 1, 2, 1):
        key = Key("a", index)
        want, got = eager(X, key), compiled(X, key)
        assert torch.equal(want[0], got[0]) and want[1:] == got[1:]
        assert table == expected
