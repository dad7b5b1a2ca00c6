"""What CPython's own tests showed to differ, as small programs, and (--full) CPython's own tests, executed by capture."""
import io
import itertools
import sys
import time
import unittest

import pytest
from capture_driver import ct, program_list
from test_capture_opcodes import run, same

PROGRAMS, program = program_list()


class Never:
    def __eq__(self, other):
        return False

    __hash__ = None


class Always:
    def __eq__(self, other):
        return True

    __hash__ = None


@program()
def items_are_compared_with_the_value_and_no_further():
    taken = []

    def numbers():
        for i in range(5):
            taken.append(i)
            yield i
    return Always() in [Never()], Never() in [Always()], 2 in numbers(), taken, Always() in (Never(),)


@program([1, 2])
def a_list_is_made_anew(items):
    own = list(items)
    own.__init__()
    first = own[:]
    own.__init__([3])
    return first, own


class MadeByClassMethod:
    @classmethod
    def __new__(*args):
        return [a.__name__ if isinstance(a, type) else a for a in args]


@program()
def new_may_be_any_descriptor():
    return MadeByClassMethod(1, 2)


@program([3, 1])
def changes_that_raise_change_nothing(items):
    try:
        items.remove(9)
    except ValueError as error:
        text = str(error)
    try:
        {}.pop("k")
    except KeyError:
        text += "!"
    items.append(2)
    return text, items[:]


class Noted:
    """An iterable that writes down when it is asked for its iterator and for items."""

    def __init__(self, log, name, n):
        self.log, self.name, self.n = log, name, n

    def __iter__(self):
        self.log.append(self.name)
        for i in range(self.n):
            self.log.append((self.name, i))
            yield i


@program()
def iterators_are_asked_for_when_cpython_does():
    log = []
    a, b = (lambda n: Noted(log, "a", n)), (lambda n: Noted(log, "b", n))
    made = [zip(a(2), b(3)), zip(a(1), b(1), a(1)), enumerate(a(2), 4), map(str, a(2)), map(max, a(1), b(1)),
            filter(None, a(3)), itertools.islice(a(4), 1, 3), itertools.cycle(a(1)), itertools.accumulate(a(3)),
            itertools.starmap(max, [(1, 2)]), itertools.takewhile(bool, a(2)), itertools.dropwhile(bool, a(2)),
            itertools.filterfalse(None, a(2)), itertools.pairwise(a(3)), itertools.zip_longest(a(1), b(2)),
            itertools.product(a(2), b(2)), itertools.combinations(a(3), 2), itertools.permutations(a(2)),
            itertools.compress(a(2), b(2)), itertools.chain(a(1), b(1)), itertools.chain.from_iterable([a(1), b(1)]),
            itertools.groupby(a(2))]
    log.append("made")
    return [[item for item, _ in zip(m, range(4))] for m in made[:-1]], log


@program([1, 2, 3])
def what_a_product_was_made_of_stays(items):
    own = items[:]
    made = itertools.product(own, own), itertools.combinations(own, 2), itertools.permutations(own, 2), reversed(own)
    own.append(4)
    del own[0]
    return [list(m) for m in made[:3]], list(zip(made[3], own))


@program()
def groups_end_where_the_next_begins():
    log = []
    groups = itertools.groupby(Noted(log, "a", 7), lambda i: i // 3)
    first, members = next(groups)
    one = next(members)
    second, others = next(groups)
    return first, one, list(members), second, [*others], log, [(k, [*g]) for k, g in groups]


@program([1, 2])
def iterators_that_watch_the_list_they_extend(items):
    items.extend(i + len(items) for i in items[:2])
    items.extend(x for x, _ in zip(itertools.chain([0], items), range(4)))
    items.extend(items)
    return items


@program([3, 1, 2], [5, 2], [7])
def slices_take_what_iterates(items, others, more):
    items[1:2] = reversed(others)
    more[5:] = items
    items += (i + len(items) for i in more)
    return items, more


@program([])
def generators_close_in_the_order_of_their_variables(log):
    def counting(n):
        try:
            yield from range(n)
        finally:
            log.append(n)

    def wrapping(n):
        yield from counting(n)

    def holder(first, second):
        a, b, c = first(3), second(2), first(4)
        return next(a), next(b), next(c)
    return holder(counting, wrapping), holder(wrapping, counting), log


@program()
def calls_until_a_value():
    items = [1, 2, 3, 4]

    def stops():
        raise StopIteration
    return list(iter(lambda: items.pop(0), 3)), items, list(iter(stops, 0)), list(itertools.repeat(7, 2))


@program([0.1] * 10)
def sums_of_floats(items):
    return (sum(items), sum(x for x in items), sum((x for x in items), 1), sum(x for x in [1, *items, 2, 1e100, 1.0, -1e100]),
            sum(x for x in [0.5, True, float("inf"), 1.0]))


def refused(call):
    try:
        call()
    except Exception as error:
        return type(error), str(error), error.args


@program()
def refused_arguments():
    return [refused(call) for call in (
        lambda: sum(["a"], ""), lambda: itertools.islice([1], -1), lambda: itertools.islice([1], 0, 3, 0),
        lambda: itertools.repeat(1, None), lambda: zip(1), lambda: map(str, 1), lambda: enumerate(None),
        lambda: min(1, 2, default=3), lambda: {}.pop((1,)), lambda: {}[(1, 2)], lambda: set().remove((1,)),
        lambda: 1 in Plain(), lambda: 1 in 2, lambda: sorted([1], reverse=""))]


def calls_with_other_arguments():
    return [refused(call) for call in (
        lambda: itertools.product(0, repeat=1, foo=2), lambda: min(0, default=1, key=2, foo=3), lambda: getattr(),
        lambda: [].append(), lambda: {}.get(), lambda: len(), lambda: map(str), lambda: str.join(), lambda: sum(),
        lambda: dict.__contains__(), lambda: hasattr(1), lambda: isinstance(1), lambda: itertools.chain(x=1))]


def test_natives_word_their_errors():
    assert ct.run(calls_with_other_arguments, (), None, 10 ** 6, 10 ** 3)[0] == calls_with_other_arguments()


class Plain:
    pass


def dict_of_an_instance(plain, given):
    fresh = Plain()
    fresh.x, plain.x = 1, 1
    own, existing = fresh.__dict__, plain.__dict__
    time.monotonic()
    fresh.x += 1
    own["y"], existing["y"] = fresh.x, 7
    del existing["x"]
    seen = hasattr(plain, "x"), plain.y, fresh.y
    plain.z = 3
    given["w"] = 4
    time.monotonic()
    return seen, fresh.__dict__ is own, plain.__dict__ is existing, own, existing, existing is given, plain.w


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 11, 13, 1000])
def test_an_instance_and_its_dict_are_one(k):
    a, b = Plain(), Plain()
    want = dict_of_an_instance(a, vars(a))
    assert ct.run(dict_of_an_instance, (b, vars(b)), None, k, 10 ** 3)[0] == want
    assert vars(a) == vars(b)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1

    def __getattr__(self, name):
        return "no " + name


def deletes_attributes(plain, slotted):
    del plain.x, slotted.a
    seen = [hasattr(plain, "x"), slotted.a, plain.y]
    plain.z, plain.x = 1, 2
    slotted.b = slotted.b + "!"
    del plain.y
    plain.y = 3
    del plain.y
    time.monotonic()
    for name, owner in (("q", plain), ("a", slotted), ("y", plain)):
        try:
            delattr(owner, name)
        except AttributeError as error:
            seen.append(error.args)
    return seen, plain, slotted.a, slotted.b


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 11, 17, 1000])
def test_attributes_of_existing_objects_are_deleted(k):
    results = []
    for call in (deletes_attributes, lambda *a: ct.run(deletes_attributes, a, None, k, 10 ** 3)[0]):
        plain, slotted = Plain(), Slotted()
        plain.x, plain.y, plain.w = 7, 8, 9
        seen, same_plain, *rest = call(plain, slotted)
        assert same_plain is plain
        results.append((seen, list(vars(plain).items()), rest))
    assert results[0] == results[1]


@pytest.mark.parametrize("fn, args", PROGRAMS)
def test_program(fn, args):
    copies = [list(a) for a in args]
    want = fn(*args)
    assert same(want, run(fn, *copies))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 11, 17, 23, 31, 1000])
def test_values_that_an_effect_replaces_live_on(k):
    def fn(n):
        x = [(str(i), i) for i in range(n)]
        for i in range(n - 1):
            x[i], x[i + 1] = x[i + 1], x[i]
        return x
    assert ct.run(fn, (30,), None, k, 10 ** 5)[0] == fn(30)


@pytest.mark.parametrize("k", [1, 3, 7, 1000])
def test_a_dict_that_changes_while_it_is_iterated(k):
    def fn(d):
        try:
            for key in d:
                del d[key]
                d[key + 1] = 0
        except RuntimeError as error:
            return str(error)
    assert ct.run(fn, ({0: 0},), None, k, 10 ** 5)[0] == fn({0: 0})


@pytest.mark.parametrize("k", [1, 5, 7, 12, 13, 17, 23, 29, 34, 1000])
def test_locals_shows_captured_variables_as_they_are(k):
    def fn():
        def outer(x):
            def g(y):
                def h():
                    return y
                y += 3
                return {k: v for k, v in locals().items() if k in ("x", "y")}, x
            return g
        return outer(2)(4)
    assert ct.run(fn, (), None, k, 10 ** 5)[0] == fn()


def test_printing_follows_sys_stdout():
    def fn(out):
        before, sys.stdout = sys.stdout, out
        print("hello")
        sys.stdout = before
        return out.getvalue()
    assert ct.run(fn, (io.StringIO(),), None, 10 ** 6, 100)[0] == "hello\n"


@pytest.mark.parametrize("make", [lambda: "{a}".format(a=object()), lambda: "%s" % [object()], lambda: repr((object(),)),
                                  lambda: f"{(x for x in 'a')}"])
def test_texts_with_addresses_are_refused(make):
    assert "address" in ct.trace(make, ())["reason"]


class Deep:
    pass


def test_deep_nesting_ends_no_process():
    def fn():
        x, y = (), []
        for _ in range(5000):
            x, y = (x,), [y]
        return x
    assert isinstance(ct.trace(fn, ()), dict)

    def cyclic():
        x = []
        x.append(x)
        return repr(x)
    assert isinstance(ct.trace(cyclic, ()), dict)
    Deep.__call__ = Deep()

    def called():
        try:
            Deep()()
        except RecursionError:
            return "too deep"
    assert ct.run(called, (), None, 10 ** 6, 100)[0] == "too deep"


# ---- CPython's own tests, where this Python has them

MODULES = ("grammar generators scope with exceptions raise unpack_ex keywordonlyarg named_expressions patma decorators property "
           "super listcomps fstring iter call functools contextlib dataclasses abc genericalias").split()
LEFT_OUT = {
    "test_ref_counting_behavior": "counts instances: those of the trace live until it ends",
    "test_partial_as_method": "the file that a warning names",
    "test_attrs": "the frames of a traceback are other objects behind a graph break",
}


def cases(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        elif type(test).__module__.startswith("test.") and not hasattr(test, "_dt_test"):
            yield test


def outcome(test, most_instructions):
    """Of a test, executed by capture with a cut after so many instructions; natively for 0."""
    test, result = type(test)(test._testMethodName), unittest.TestResult()
    method = getattr(test, test._testMethodName)

    def captured(*args, **kwargs):
        return ct.run(method, args, kwargs, most_instructions, 10 ** 5)[0]
    if most_instructions:
        captured.__dict__.update(method.__func__.__dict__)
        setattr(test, test._testMethodName, captured)
    test.run(result)
    return bool(result.errors or result.failures), bool(result.skipped)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("k", [10 ** 6, 7])
def test_cpythons_own_tests(module, k):
    tests = unittest.defaultTestLoader.loadTestsFromModule(
        pytest.importorskip(f"test.test_{module}", reason="this Python has no test package"))
    for test in cases(tests):
        if test._testMethodName not in LEFT_OUT:
            assert outcome(test, 0) == outcome(test, k), test.id()
