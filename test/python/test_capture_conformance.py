"""What CPython's own tests showed to differ, as small programs, and (--full) CPython's own tests, executed by capture."""
import io
import sys
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


@program()
def natives_called_with_too_little():
    out = []
    for call in (dict.__contains__, list.append, [].append, str.join, dict.get):
        try:
            call()
        except TypeError:
            out.append("TypeError")
    return out



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
