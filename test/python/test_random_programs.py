"""Random Python programs, traced and cut after every so many instructions, against CPython. BRAZE_RANDOM_SEED and
BRAZE_RANDOM_COUNT choose others; the full tests run 100,000."""
import os

import pytest
from random_programs import check

SEED = int(os.environ.get("BRAZE_RANDOM_SEED", "1"))
COUNT = int(os.environ.get("BRAZE_RANDOM_COUNT", "2000"))
GROUP = 100


def reports(first, count):
    return [report for seed in range(first, first + count) if (report := check(seed))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", range(COUNT // GROUP))
def test_random_programs(group):
    found = reports(SEED + group * GROUP, GROUP)
    assert not found, "\n\n".join(found)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", range(100_000 // 1000))
def test_many_random_programs(group):
    found = reports(10**6 + group * 1000, 1000)
    assert not found, "\n\n".join(found)
