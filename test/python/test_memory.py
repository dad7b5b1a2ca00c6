"""Memory of results: blocks of 1 MB and more are kept and used again."""
import braze
import pytest
import torch


@pytest.mark.parametrize("megabytes", [2, 130])
def test_freed_results_are_used_again(megabytes):
    """Also when all of them are larger than what is kept in any case: the next call's results are as large."""
    x = torch.zeros(megabytes << 18)
    f = braze.compile(lambda x: tuple(x + i for i in range(5)))
    places = lambda: {out.data_ptr() for out in f(x)}
    places()
    first = places()
    assert len(first) == 5 and places() == first


def test_results_that_live_are_not_used_again():
    x = torch.zeros(1 << 20)
    f = braze.compile(lambda x: x + 1)
    kept = [f(x) for _ in range(4)]
    assert len({out.data_ptr() for out in kept}) == 4
    del kept[1:]
    assert f(x.neg()).data_ptr() != kept[0].data_ptr() and (kept[0] == 1).all()


def test_sizes_that_differ_a_little_share_blocks():
    """Up to a sixteenth: results whose length changes from call to call."""
    f = braze.compile(lambda x: x + 1, dynamic=True)
    rows = torch.zeros(1100, 7000)
    place = lambda n: f(rows[:n]).data_ptr()
    first = place(1050)
    assert [place(1040), place(1000), place(1050)] == [first] * 3
    assert place(1100) != first
