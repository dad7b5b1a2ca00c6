"""Classes that gain or lose special methods between calls: compiled code that relied on their absence is not used."""

import abc

import pytest
import torch

import braze

X = torch.ones(2)


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    yield


def check(make, *changes, fullgraph=True):
    """make() gives a function and a class; each change of the class is seen by the next call."""
    eager, eager_class = make()
    function, compiled_class = make()
    compiled = braze.compile(function, fullgraph=fullgraph)
    assert torch.equal(compiled(X), eager(X))
    for change in changes:
        before = eager(X)
        change(eager_class), change(compiled_class)
        assert not torch.equal(eager(X), before)
        for _ in range(2):
            assert torch.equal(compiled(X), eager(X))


def assign(name, value):
    return lambda cls: setattr(cls, name, value)


def remove(name):
    return lambda cls: delattr(cls, name)


def test_getattr():
    def make():
        class K:
            pass

        k = K()
        return lambda x: x * getattr(k, "w", 7), K

    check(make, assign("__getattr__", lambda self, name: 13), remove("__getattr__"))


@pytest.mark.parametrize("getattr_too", [False, True])
def test_getattribute(getattr_too):
    def make():
        class K:
            v = 1

        if getattr_too:
            K.__getattr__ = lambda self, name: 3
        k = K()
        return lambda x: x * k.v, K

    check(make, assign("__getattribute__", lambda self, name: 11))


def test_length_iteration_and_truth():
    def make():
        class Items(list):
            pass

        items = Items([1, 2])
        return lambda x: x + len(items) * 100 + sum(items) + (5 if items else 0), Items

    check(make, assign("__len__", lambda self: 9), assign("__iter__", lambda self: iter([4])),
          assign("__bool__", lambda self: False), remove("__bool__"))


def test_truth_by_a_base_class():
    def make():
        class Base:
            pass

        class Derived(Base):
            pass

        d = Derived()
        return lambda x: x + (5 if d else 0), Base

    check(make, assign("__bool__", lambda self: False), remove("__bool__"))


def test_new_objects():
    def make():
        class K:
            pass

        def f(x):
            k = K()
            return x + (5 if k else 0) + (k == K())

        return f, K

    check(make, assign("__bool__", lambda self: False), assign("__eq__", lambda self, other: True))


def test_missing_keys():
    def make():
        class Table(dict):
            pass

        table = Table(a=1)

        def f(x):
            try:
                return x + table["b"]
            except KeyError:
                return x

        return f, Table

    check(make, assign("__missing__", lambda self, key: 5))


def test_descriptors():
    def make():
        class Field:
            pass

        class Holder:
            field = Field()

        holder = Holder()
        return lambda x: x + (1 if isinstance(holder.field, Field) else 0), Field

    check(make, assign("__get__", lambda self, owner, cls: 4))


def test_registration_with_an_abstract_class():
    def make():
        class Abstract(abc.ABC):
            pass

        class Plain:
            pass

        plain = Plain()
        Abstract.plain = Plain
        return lambda x: x + isinstance(plain, Abstract) + issubclass(Plain, Abstract), Abstract

    check(make, lambda cls: cls.register(cls.plain))


def test_instance_checks_of_metaclasses():
    def make():
        class Meta(type):
            pass

        class K(metaclass=Meta):
            pass

        return lambda x: x + isinstance(3, K), Meta

    check(make, assign("__instancecheck__", lambda cls, value: True))
