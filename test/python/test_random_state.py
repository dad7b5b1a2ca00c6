"""Random numbers in compiled calls: the generator's state afterwards is eager's, and programs may read and set it."""
import pytest
import torch
import torch.nn.functional as F

import braze


def unused(x):
    torch.rand(3)
    return x + 1


def replayed(x):
    state = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(state)
    return a, torch.rand(3), x + a


def forked(x):
    with torch.random.fork_rng(devices=[]):
        a = F.dropout(x, 0.5)
    return a, torch.rand(2)


def seeded(x):
    torch.manual_seed(3)
    return x + torch.rand(3)


@pytest.mark.parametrize("f", [unused, replayed, forked, seeded])
def test_the_state_is_eager_s(f):
    braze.reset()
    compiled = braze.compile(f, fullgraph=True)
    states, results = [], []
    for g in (f, compiled, compiled):
        torch.manual_seed(7)
        results.append(g(torch.ones(3)))
        states.append(torch.get_rng_state())
    for result, state in zip(results[1:], states[1:], strict=True):
        torch.testing.assert_close(result, results[0], rtol=0, atol=0)
        assert torch.equal(state, states[0])


def test_checks_without_results_run():
    f = braze.compile(lambda x: F.one_hot(x, 4) * 2, fullgraph=True)
    assert f(torch.tensor([1])).tolist() == [[0, 2, 0, 0]]
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        f(torch.tensor([5]))
