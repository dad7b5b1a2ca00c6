"""Views, in-place writes and aliasing through braze.compile: inputs and outputs end as eager leaves them."""
import pytest
import torch

import braze
from alias_cases import CASES
from same_as_eager import compare, storages, tensors_of


@pytest.mark.parametrize("backend", ["eager", "braze"])
@pytest.mark.parametrize("name", CASES)
def test_same_as_eager(name, backend):
    braze.reset()
    torch.manual_seed(0)
    fn, args = CASES[name]()
    torch.manual_seed(0)
    same_fn, same_args = CASES[name]()
    compiled = braze.compile(same_fn, fullgraph=True, backend=backend)
    with torch.no_grad():
        for _ in range(2):
            want, got = tensors_of(fn(*args)), tensors_of(compiled(*same_args))
            assert len(want) == len(got)
            inputs = [list({id(x): x for x in tensors_of(a)}.values()) for a in (args, same_args)]
            for i, (w, g) in enumerate(zip(want + inputs[0], got + inputs[1])):
                compare(w, g, f"tensor {i}")
            assert storages(inputs[0] + want) == storages(inputs[1] + got)
    assert braze.counters() == {"graphs": 1, "breaks": {}, "skipped": {}}
