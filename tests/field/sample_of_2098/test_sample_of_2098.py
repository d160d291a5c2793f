"""One sample of the year 2098 changes no other figure, and later samples are stored."""

import pytest

from tests.field.site import BUSY, Site, build_node, build_pod, list_lines

IN_2098 = 4039374839932


@pytest.mark.long  # tests/cli/test_old_stamps.py has the other end of the same range
def test_a_sample_of_2098_is_left_out_and_counted(site: Site) -> None:
    site.import_objects(build_node("a"), build_pod("train", "a", gpus=2))
    first, second = (
        list_lines(f"GPU-{k}", "a", gpu=k, pod="train", namespace="ml") for k in (0, 1)
    )
    odd = f"{first[0].rsplit(' ', 1)[0]} {IN_2098}"
    answer = site.import_lines(*first[: len(first) // len(BUSY)], odd)
    assert answer.code == 0, answer.err
    assert site.query("select max(ts) < now() as sane from sample") == [{"sane": True}]
    assert site.import_lines(*first, *second).code == 0
    assert site.sum_hours("state") == {"productive": 12.0}
