"""Collecting garbage rarely ends with the block, however it ends."""

import gc

import pytest

from fallow.system.garbage import YOUNG_OBJECTS, collect_garbage_rarely


def test_garbage_is_collected_rarely_only_within_the_block() -> None:
    before = gc.get_threshold()

    with collect_garbage_rarely():
        assert gc.get_threshold() == (YOUNG_OBJECTS, *before[1:])
        assert gc.isenabled()

    assert gc.get_threshold() == before


def test_a_block_that_fails_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold()

    with pytest.raises(ZeroDivisionError), collect_garbage_rarely():
        raise ZeroDivisionError

    assert gc.get_threshold() == before
