"""Backends by name, by callable, and braze as a backend of torch.compile."""
import subprocess
import sys

import pytest
import torch

import braze


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    with torch.no_grad():
        yield


def program(x, y):
    x.add_(1)
    halves = (x * 2).split(2)
    return halves[0] + y, torch.var_mean(x), x


def check(backend):
    given = [torch.randn(4, 3), torch.randn(3)]
    expected = [t.clone() for t in given]
    result, wanted = braze.compile(program, backend=backend, fullgraph=True)(*given), program(*expected)
    torch.testing.assert_close(result[:2], wanted[:2])
    torch.testing.assert_close(given[0], expected[0])
    assert result[2] is given[0]
    assert braze.counters()["graphs"] == 1


@pytest.mark.parametrize("backend", ["braze", "eager", "aot_eager"])
def test_own_backends(backend):
    check(backend)


def test_a_callable_gets_a_graph_module_and_example_inputs():
    seen = []

    def backend(module, examples):
        seen.append((module, examples))
        return module

    check(backend)
    (module, examples), = seen
    assert isinstance(module, torch.fx.GraphModule)
    assert [tuple(e.shape) for e in examples] == [(4, 3), (3,)]
    assert torch.ops.aten.add.Tensor in {node.target for node in module.graph.nodes}


def test_registered_backends_are_listed():
    @braze.register_backend(name="counting")
    def backend(module, examples):
        return module.forward

    assert "counting" in braze.list_backends() and "braze" in braze.list_backends()
    check("counting")
    with pytest.raises(ValueError, match="backend of braze's own"):
        braze.register_backend(backend, name="eager")


def test_each_size_has_a_graph_of_its_own_for_a_callable():
    shapes = []

    def backend(module, examples):
        shapes.append(tuple(examples[0].shape))
        return module

    f = braze.compile(torch.sin, backend=backend)
    for n in 3, 4, 5:
        torch.testing.assert_close(f(torch.ones(n)), torch.sin(torch.ones(n)))
    assert shapes == [(3,), (4,), (5,)]


def test_a_backend_that_raises_leaves_the_call_to_eager():
    def backend(module, examples):
        raise ValueError("not today")

    f = braze.compile(torch.sin, backend=backend)
    torch.testing.assert_close(f(torch.ones(2)), torch.sin(torch.ones(2)))
    with pytest.raises(braze.Unsupported, match="not today"):
        braze.compile(torch.sin, backend=backend, fullgraph=True)(torch.ones(2))


def test_torch_compile_takes_braze():
    code = """
import torch, braze
def f(x, y):
    return torch.relu(x) @ y + 1
x, y = torch.randn(3, 4), torch.randn(4, 2)
with torch.no_grad():
    torch.testing.assert_close(torch.compile(f, backend="braze")(x, y), f(x, y))
assert braze.counters()["graphs"] == 1, braze.counters()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
