"""Random networks beside eager: a few here, many by networks.py."""

import pytest
from networks import check

SEEDS, BLOCK = 24, 6


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_random_networks(first):
    ran = [check(seed) for seed in range(first, first + BLOCK)]
    assert [said for said in ran if said] == []
    assert sum(said is not None for said in ran) > BLOCK // 2
