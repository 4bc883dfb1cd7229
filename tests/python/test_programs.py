"""Random programs beside eager: a few here, many by programs.py."""

import pytest
from programs import check

SEEDS, BLOCK = 84, 12


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_random_programs(first):
    ran = [check(seed) for seed in range(first, first + BLOCK)]
    assert [said for said in ran if said] == []
    assert sum(said is not None for said in ran) > BLOCK // 2
