"""Backward passes in parts, where hooks wait for the gradients one by one."""
import pytest
import torch
from torch import nn

import braze

SIZE, LAYERS = 300, 6


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()


def net():
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(LAYERS) for layer in (nn.Linear(SIZE, SIZE), nn.Tanh())])


X = torch.randn(8, SIZE, generator=torch.Generator().manual_seed(1))


def chain(function):
    """How many nodes of autograd the backward pass of a compiled region is."""
    n = 0
    while function is not None:
        n += 1
        function = next((f for f, _ in function.next_functions if f is not None and f.name() == "CompiledRegionBackward"), None)
    return n


def hooked(model, seen):
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name, p.grad.clone())))
    return model


def test_without_hooks_it_is_one_node():
    assert chain(braze.compile(net())(X).grad_fn) == 1


def test_hooks_get_each_gradient_when_it_is_done():
    eager_seen, seen = [], []
    hooked(net(), eager_seen)(X).square().sum().backward()
    model = hooked(net(), seen)
    out = braze.compile(model, fullgraph=True)(X)
    assert chain(out.grad_fn) >= 4
    out.square().sum().backward()
    assert {name for name, _ in seen} == {name for name, _ in eager_seen} and len(seen) == len(eager_seen)
    expected = dict(eager_seen)
    for name, gradient in seen:
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)
    layers = [int(name.split(".")[0]) for name, _ in seen]
    assert layers[0] > layers[-1]


def test_the_rest_is_not_computed_before_a_hook_runs():
    class Stop(Exception):
        pass

    def stop(_):
        raise Stop

    model = net()
    model[2 * LAYERS - 2].weight.register_post_accumulate_grad_hook(stop)
    out = braze.compile(model)(X)
    with pytest.raises(Stop):
        out.sum().backward()
    assert model[0].weight.grad is None


def test_an_optimizer_that_steps_in_hooks():
    runs = []
    for compiled in (False, True):
        model = net()
        optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

        def step(p, optimizers=optimizers):
            optimizers[p].step()
            p.grad = None

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)
        f = braze.compile(model) if compiled else model
        for _ in range(3):
            f(X).square().sum().backward()
        runs.append(list(model.parameters()))
    for e, g in zip(*runs, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-5)


def test_again_partly_and_twice():
    seen = []
    model = hooked(net(), seen)
    compiled = braze.compile(model)
    out = compiled(X).square().sum()
    out.backward(retain_graph=True)
    once = [p.grad.clone() for p in model.parameters()]
    out.backward()
    for p, g in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()
    parameters = list(model.parameters())
    for chosen in ([parameters[0]], [parameters[-1]], [parameters[3], parameters[6]]):
        got = torch.autograd.grad(compiled(X).square().sum(), chosen)
        for g, p in zip(got, chosen, strict=True):
            torch.testing.assert_close(g, once[[q is p for q in parameters].index(True)])


def test_second_derivatives():
    results = []
    for compile in (lambda m: m, braze.compile):
        model = hooked(net(), [])
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(compile(model)(X).square().mean(), parameters, create_graph=True)
        sum(g.square().sum() for g in gradients).backward()
        results.append([p.grad for p in parameters])
    for e, g in zip(*results, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-3, atol=1e-5)
