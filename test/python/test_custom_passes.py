"""Graph passes of the user's: what they see, what they can change, and what becomes of wrong ones."""
import pytest
import torch
from torch import nn

import braze

NAMES = ["joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass"]
X = torch.linspace(-8, 8, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()


def relu_to_relu6(graph):
    for node in graph.find("aten.relu"):
        new = graph.insert_before(node, "aten.hardtanh", node.args[0], 0.0, max_val=6)
        graph.replace(node.result, new.result)
        graph.erase(node)


@pytest.mark.parametrize("backend", ["braze", "aot_eager"])
@pytest.mark.parametrize("name", NAMES)
def test_a_pass_changes_what_runs(name, backend):
    f = braze.compile(lambda x: torch.relu(x) + 1, fullgraph=True, backend=backend, options={name: relu_to_relu6})
    torch.testing.assert_close(f(X), nn.functional.relu6(X) + 1)


def test_order_and_graphs():
    seen = []

    def note(name):
        return lambda graph: seen.append((name, any(n.is_backward for n in graph.nodes), [n.op for n in graph.nodes]))

    w = torch.randn(4, 4, requires_grad=True)
    f = braze.compile(lambda x: (x @ w).tanh(), fullgraph=True, options={name: note(name) for name in NAMES})
    out = f(X)
    assert [name for name, _, _ in seen] == NAMES
    assert [joint for _, joint, _ in seen] == [True, True, False, False]
    out.sum().backward()
    assert [name for name, _, _ in seen] == NAMES + NAMES[2:]
    assert "aten.tanh" in seen[0][2] and "aten.tanh" not in seen[-1][2]
    seen.clear()
    with torch.no_grad():
        f(X)
    assert sorted(name for name, _, _ in seen) == sorted(NAMES)


def test_what_a_pass_sees():
    texts = []

    def look(graph):
        add, = graph.find("aten.add.Tensor")
        x, y = graph.inputs
        assert add.args == [x, y, 2] and add.argument("other") == y and add.argument("alpha") == 2
        assert x.dtype == torch.float32 and y.dtype == torch.int64 and x.device.type == "cpu"
        assert x.sizes == (3, 4) and x.strides == (4, 1) and x.producer is None
        assert add.result.producer == add and add in x.users and hash(add) == hash(x.users[0])
        assert len(graph) == len(graph.nodes) and graph.outputs[0].producer.op == "aten.sum.dim_IntList"
        to, = graph.find("aten.sum.dim_IntList")
        assert to.argument("dim") == [1] and to.argument("keepdim") is True and to.argument("dtype") == torch.float64
        assert "aten.add.Tensor" in repr(add) and "f32[3, 4]" in repr(x)
        texts.append(str(graph))

    f = braze.compile(lambda x, y: torch.add(x, y, alpha=2).sum(1, keepdim=True, dtype=torch.float64), fullgraph=True,
                      options={"joint_custom_pre_pass": look})
    y = torch.arange(12).reshape(3, 4)
    torch.testing.assert_close(f(X, y), torch.add(X, y, alpha=2).sum(1, keepdim=True, dtype=torch.float64))
    assert len(texts) == 1 and texts[0].startswith("graph ")


def test_symbolic_sizes_pass_through():
    def to_view(graph):
        for node in graph.find("aten.relu"):
            x = node.args[0]
            flat = graph.insert_before(node, "aten.mul.Tensor", x, 2.0)
            node.set_arg(0, flat.result)
            assert not isinstance(x.sizes[0], int) and "s0" in repr(x.sizes[0])

    f = braze.compile(lambda x: torch.relu(x), dynamic=True, fullgraph=True, options={"joint_custom_pre_pass": to_view})
    for n in (3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(f(x), torch.relu(2 * x))


def wrong_order(graph):
    last = graph.nodes[-1]
    first = graph.nodes[0]
    first.set_arg(0, last.result)


def wrong_type(graph):
    node = graph.nodes[-1]
    narrow = graph.append("aten.sum", node.result)
    graph.replace(node.result, narrow.result)


def raises(graph):
    raise KeyError("what is this")


def erases_a_used_node(graph):
    graph.erase(graph.nodes[0])


def unknown_operator(graph):
    graph.append("aten.no_such_thing", graph.inputs[0])


@pytest.mark.parametrize("wrong", [wrong_order, wrong_type, raises, erases_a_used_node, unknown_operator])
def test_wrong_passes(wrong):
    def f(x):
        return (x * 2).exp().relu()

    for name in NAMES:
        strict = braze.compile(f, fullgraph=True, options={name: wrong})
        with pytest.raises(braze.Unsupported, match=name):
            strict(X)
        torch.testing.assert_close(braze.compile(f, options={name: wrong})(X), f(X))


def test_a_wrong_pass_over_a_backward_graph_leaves_it_as_it_was():
    calls = []

    def second(graph):
        calls.append(graph)
        if len(calls) == 2:
            raise ValueError

    w = torch.randn(4, requires_grad=True)
    braze.compile(lambda x: (x * w).tanh(), options={"post_grad_custom_pre_pass": second})(X).sum().backward()
    got, w.grad = w.grad, None
    (X * w).tanh().sum().backward()
    torch.testing.assert_close(got, w.grad)
    assert len(calls) == 2


def test_a_graph_is_of_no_use_after_its_pass():
    kept = []
    braze.compile(lambda x: x.exp(), fullgraph=True, options={"joint_custom_pre_pass": kept.append})(X)
    with pytest.raises(ValueError, match="the pass is over"):
        kept[0].nodes


def test_errors_of_arguments():
    def check(graph):
        node = graph.nodes[0]
        x = graph.inputs[0]
        for args, kwargs, error in (((x, x, 1, 2), {}, TypeError), ((x,), {}, TypeError), ((x, x), {"beta": 1}, TypeError),
                                    (("x", x), {}, TypeError), ((x, x), {"other": x}, TypeError)):
            with pytest.raises(error):
                graph.insert_before(node, "aten.add.Tensor", *args, **kwargs)
        with pytest.raises(IndexError):
            node.set_arg(9, x)
        with pytest.raises(KeyError):
            node.argument("nothing")

    braze.compile(lambda x: x.exp(), fullgraph=True, options={"joint_custom_pre_pass": check})(X)
    with pytest.raises(TypeError, match="must be a callable or None"):
        braze.compile(lambda x: x, options={"joint_custom_pre_pass": 3})


def test_config_holds_for_all():
    calls = []
    braze.config.joint_custom_pre_pass = lambda graph: calls.append(len(graph))
    try:
        braze.compile(lambda x: x.exp() + 1, fullgraph=True)(X)
    finally:
        braze.config.joint_custom_pre_pass = None
    assert calls == [2]
