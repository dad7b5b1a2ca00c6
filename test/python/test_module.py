"""Compiled nn.Modules behave as the module itself."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

import braze


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    with torch.no_grad():
        yield


class Net(nn.Module):
    """A net."""

    limit = 4.0

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(8, 2)
        self.register_buffer("offset", torch.ones(2))
        self.gain = 2.0

    @property
    def doubled(self):
        return self.gain * 2

    def __len__(self):
        return 2

    def forward(self, x):
        return self.second(self.drop(torch.relu(self.first(x)))) * self.gain + self.offset


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


def assert_same(compiled, module, x=None):
    x = torch.randn(3, 4) if x is None else x
    torch.testing.assert_close(compiled(x), module(x))


def test_it_is_the_module_to_its_users(net):
    compiled = braze.compile(net)
    assert isinstance(compiled, Net) and isinstance(compiled, braze.OptimizedModule)
    assert compiled._orig_mod is net
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in compiled.named_modules()] == [n for n, _ in net.named_modules()]
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))
    assert compiled.first is net.first and compiled.limit == 4.0 and compiled.doubled == 4.0 and len(compiled) == 2
    assert repr(compiled) == repr(net)
    assert_same(compiled, net)
    assert braze.counters()["graphs"] == 1 and braze.counters()["skipped"] == {}


def test_state_set_through_either_is_seen_by_both(net):
    compiled = braze.compile(net)
    assert_same(compiled, net)
    compiled.gain = 3.0
    assert net.gain == 3.0
    assert_same(compiled, net)
    net.second = nn.Linear(8, 3)
    net.offset = torch.zeros(3)
    assert compiled(torch.randn(1, 4)).shape == (1, 3)
    assert_same(compiled, net)
    del compiled.gain
    assert not hasattr(net, "gain")


def test_train_and_eval(net):
    compiled = braze.compile(net)
    x = torch.randn(16, 4)
    assert_same(compiled, net, x)
    assert compiled.train() is compiled and net.training and net.drop.training
    torch.manual_seed(1)
    got = compiled(x)
    torch.manual_seed(1)
    torch.testing.assert_close(got, net(x))
    compiled.eval()
    assert not net.drop.training
    assert_same(compiled, net, x)


def test_weights_are_looked_up_live(net):
    compiled = braze.compile(net)
    assert_same(compiled, net)
    net.first.weight.mul_(2)
    assert_same(compiled, net)
    net.first.weight = nn.Parameter(torch.randn(8, 4))
    assert_same(compiled, net)
    net.load_state_dict({k: torch.randn_like(v) for k, v in net.state_dict().items()})
    assert_same(compiled, net)
    net.first.weight.data = torch.randn(8, 4)
    assert_same(compiled, net)
    graphs = braze.counters()["graphs"]
    assert graphs == 1, "new weights of the same kind need no new graph"


def test_hooks_run(net):
    compiled = braze.compile(net)
    assert_same(compiled, net)
    handle = net.first.register_forward_hook(lambda module, args, out: out * 3)
    assert_same(compiled, net)
    handle.remove()
    assert_same(compiled, net)
    handle = compiled.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    assert_same(compiled, net)
    handle.remove()
    assert_same(compiled, net)


def test_copies_are_compiled_modules_of_their_own(net):
    compiled = braze.compile(net, options={"recompile_limit": 3})
    x = torch.randn(2, 4)
    want = compiled(x)
    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(twin, braze.OptimizedModule) and isinstance(twin, Net)
        torch.testing.assert_close(twin(x), want)
        twin.first.weight.zero_()
        torch.testing.assert_close(compiled(x), want)
        assert_same(twin, twin._orig_mod, x)


def test_methods_of_the_class_call_the_compiled_module():
    class Twice(Net):
        def run(self, x):
            return self(x) + self(x)

    module = Twice().eval()
    compiled = braze.compile(module)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled.run(x), module.run(x))
    assert braze.counters()["graphs"] == 1


def test_conversions(net):
    compiled = braze.compile(net)
    assert compiled.double() is compiled
    assert net.first.weight.dtype == torch.float64
    assert_same(compiled, net, torch.randn(2, 4, dtype=torch.float64))


def test_classes_with_hooks_on_subclasses():
    made = []

    class Base(nn.Module):
        def __init_subclass__(cls, **kwargs):
            made.append(cls)

    class Child(Base):
        def forward(self, x):
            return x + 1

    compiled = braze.compile(Child())
    assert made == [Child]
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_a_dropped_module_leaves_nothing(net):
    module = Net().eval()
    compiled = braze.compile(module)
    compiled(torch.randn(1, 4))
    alive = weakref.ref(module)
    weight = weakref.ref(module.first.weight)
    del module, compiled
    gc.collect()
    assert alive() is None and weight() is None


def test_modules_inside_compiled_functions(net):
    @braze.compile
    def f(x):
        return net(x).sum(-1)

    x = torch.randn(3, 4)
    torch.testing.assert_close(f(x), net(x).sum(-1))
    net.gain = 5.0
    torch.testing.assert_close(f(x), net(x).sum(-1))
    inner = braze.compile(net)

    @braze.compile(fullgraph=True)
    def g(x):
        return inner(x) * 2

    torch.testing.assert_close(g(x), net(x) * 2)
