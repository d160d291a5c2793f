"""One sample of 1970 is left out, said, and gives accounting no hour to do."""

from typing import Any

from tests.field.site import Site, build_node, build_pod, list_lines

IN_1970 = 5011200000


def test_a_sample_of_1970_is_left_out_and_accounting_ends(site: Site) -> None:
    site.import_objects(build_node("a"), build_pod("train", "a", gpus=2))
    pod: dict[str, Any] = {"pod": "train", "namespace": "ml", "container": "c"}
    lines = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, **pod)]
    odd = f"{lines[0].rsplit(' ', 1)[0]} {IN_1970}"
    answer = site.import_lines(odd, *lines)
    assert answer.code == 0, answer.err
    counts = answer.out.splitlines()[1].split()
    assert counts[5:7] == ["0", "1"]  # none of the future; the sample of 1970
    assert site.sum_hours("state") == {"productive": 12.0}
    assert site.query("select count(*) as n from sample where ts < timestamp '2000-01-01'") == [
        {"n": 0}
    ]
