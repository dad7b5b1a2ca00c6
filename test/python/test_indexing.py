"""Loads at computed places: fused with what they read and with what reads them, and their bounds."""
import pytest
import torch
from torch.nn.functional import embedding, pad

import braze


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    with torch.no_grad():
        yield


FUSED = {
    "gather of a pad": lambda x, i: pad(x, (1, 1, 1, 1))[i + 1] * 2,
    "gather of a function of a pad": lambda x, i: torch.relu(pad(x, (1, 1, 1, 1)))[i] + 1,
    "pad of a gather": lambda x, i: pad(x[i], (1, 1, 1, 1)) * 2,
    "gather of a gather": lambda x, i: (x[i][:, i] * 2).sum(1),
    "gather of an index value": lambda x, i: torch.relu(x + torch.arange(4))[i][i.flip(0)],
    "gather at a gathered place, in range only": lambda x, i: x + pad((x + x.gather(1, (i // 2)[:, None].expand(3, 4)))[i[:2]], (0, 0, 0, 1)),
    "row of gathers and pads": lambda x, i: pad(x[i] + torch.arange(3)[:, None], (0, 0, 2, 2))[i.flip(0)].softmax(-1),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_gathers(name):
    f = FUSED[name]
    x, i = torch.randn(3, 4), torch.tensor([0, 2, 2])
    torch.testing.assert_close(braze.compile(f, fullgraph=True)(x, i), f(x, i))
    assert braze.fallback_report() == {}


OUT_OF_RANGE = {
    "index": lambda x, i: x[i],
    "embedding": lambda x, i: embedding(i, x),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i.view(2, 1)),
    "index of an expanded dimension": lambda x, i: x.expand(2, 4)[i + 1],
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_dimension_of_one_element_is_checked(name):
    f = OUT_OF_RANGE[name]
    x = torch.randn(1, 4)
    torch.testing.assert_close(braze.compile(f)(x, torch.tensor([0, 0])), f(x, torch.tensor([0, 0])))
    with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
        braze.compile(f)(x, torch.tensor([0, 1]))
