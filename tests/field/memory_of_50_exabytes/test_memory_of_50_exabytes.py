"""A request beyond 64 bits is that pod's unknown, not everybody's."""

from typing import Any

from tests.field.site import Site, build_node, build_pod

ODD: dict[str, dict[str, Any]] = {
    "memory-50e": {"memory": "50E"},
    "memory-8ei": {"memory": "8Ei"},
    "cpu-9e": {"cpu": "9E"},
    "cpu-digits": {"cpu": "9" * 5000},
    "memory-exponent": {"memory": "1e999"},
}


def test_requests_beyond_64_bits_cost_no_other_pod(site: Site) -> None:
    odd = [build_pod(name, "a", **requests) for name, requests in ODD.items()]
    answer = site.import_objects(
        build_node("a"), build_pod("first", "a"), *odd, build_pod("last", "a")
    )
    assert answer.code == 0, answer.err
    rows = site.query("select pod, cpu_request_milli, memory_request_bytes from pod")
    requests = {row["pod"]: (row["cpu_request_milli"], row["memory_request_bytes"]) for row in rows}
    assert requests["first"] == requests["last"] == (4000, 17179869184)
    for name in ODD:
        assert requests.get(name, (None, None)) in {(None, None), (4000, None), (None, 17179869184)}
    assert "rejected pod" in site.run("doctor").out
    assert {row["name"] for row in site.query("select name from rejection")} == {*ODD}
