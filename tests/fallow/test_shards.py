"""Shards: every target has exactly one, one more moves few, and wrong ones are explained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.errors import UsageError
from fallow.shards import Shard, choose_shard, count_targets, find_shard, parse_shard

TARGETS = [f"http://10.0.{n // 256}.{n % 256}:9400/metrics" for n in range(4_000)]


@given(st.lists(st.text(max_size=20), unique=True, max_size=30), st.integers(1, 9))
def test_every_target_belongs_to_exactly_one_shard(targets: list[str], count: int) -> None:
    shards = [Shard(number, count) for number in range(1, count + 1)]
    assert [sum(shard.owns(target) for shard in shards) for target in targets] == [1] * len(targets)
    parts = tuple(sum(shard.owns(target) for target in targets) for shard in shards)
    assert parts == count_targets(targets, count)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_one_more_shard_moves_only_what_it_takes(count: int) -> None:
    moved = [
        find_shard(target, count + 1)
        for target in TARGETS
        if find_shard(target, count) != find_shard(target, count + 1)
    ]
    assert set(moved) == {count + 1}
    fair = len(TARGETS) / (count + 1)
    assert 0.85 * fair < len(moved) < 1.15 * fair


def test_shards_are_even_and_do_not_depend_on_the_order_of_targets() -> None:
    counts = count_targets(TARGETS, 8)
    assert sum(counts) == len(TARGETS)
    assert all(400 < count < 600 for count in counts), counts
    assert count_targets(TARGETS[::-1], 8) == counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9/8", "shard '9/8': the number must be 1 to 8, it is 9"),
        ("0/8", "shard '0/8': the number must be 1 to 8, it is 0"),
        ("1/0", "shard '1/0': the count must be 1 to 256, it is 0"),
        ("1/999", "shard '1/999': the count must be 1 to 256, it is 999"),
        ("a/b", "shard 'a/b' is not NUMBER/COUNT"),
        ("2", "shard '2' is not NUMBER/COUNT"),
        ("-1/8", "shard '-1/8' is not NUMBER/COUNT"),
        ("2/8/9", "shard '2/8/9' is not NUMBER/COUNT"),
        ("", "shard '' is not NUMBER/COUNT"),
    ],
)
def test_a_wrong_shard_is_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shard(text)
    assert caught.value.message == message
    assert caught.value.hint == "write NUMBER/COUNT, such as 2/8: the second of eight shards"


@pytest.mark.parametrize(
    ("shard", "shards", "host", "chosen"),
    [
        ("", 1, "laptop", Shard(1, 1)),
        ("2/8", 1, "laptop", Shard(2, 8)),
        ("2/8", 8, "fallow-collector-5", Shard(2, 8)),
        ("", 8, "fallow-collector-0", Shard(1, 8)),
        ("", 8, "fallow-collector-7", Shard(8, 8)),
        ("", 12, "fallow-collector-of-12-10", Shard(11, 12)),
    ],
)
def test_the_shard_is_named_or_the_ordinal_of_the_pod(
    shard: str, shards: int, host: str, chosen: Shard
) -> None:
    assert choose_shard(shard, shards, host) == chosen


@pytest.mark.parametrize(
    ("shard", "shards", "host", "message"),
    [
        ("2/8", 4, "x-1", "shard '2/8' counts 8 shards, service.shards is 4"),
        ("", 8, "fallow-collector-8", "does not end in an ordinal of -0 to -7"),
        ("", 8, "fallow-5d4f-xk2vq", "does not end in an ordinal of -0 to -7"),
        ("", 8, "laptop", "service.shards is 8, and the host's name 'laptop' does not end"),
    ],
)
def test_a_shard_that_cannot_be_chosen_is_explained(
    shard: str, shards: int, host: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        choose_shard(shard, shards, host)
