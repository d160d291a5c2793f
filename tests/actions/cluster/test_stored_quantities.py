"""What we call the canonical form of a quantity is what the server stores.

Two spellings are left out that a real server keeps as they are, and we do not: `12E6` and `5e0`.
"""

from fallow.kube.quantities import is_same_value, write_canonical
from tests.actions.places import Place

WRITTEN = (
    "8192Mi", "7476Mi", "1.5Gi", "1024Ki", "1023Ki", "0.5Mi", "0.5Ki", "0.1Ki", "1Ti", "1024Ti",
    "1024", "1000", "1500", "10000", "2500000", "8589934592", "1000M", "1.5G", "128974848000m",
    "0.1", "2.50", "100u", "1n", "250m", "2000m", "12e6", "1e4", "5e-1", "15e-1",
)  # fmt: skip


def test_the_server_stores_quantities_in_canonical_form(place: Place) -> None:
    containers = [
        {"name": f"c{n}", "image": "b", "resources": {"requests": {"memory": text}}}
        for n, text in enumerate(WRITTEN)
    ]
    made = place.make("Pod", {"metadata": {"name": "p"}, "spec": {"containers": containers}})
    stored = [c["resources"]["requests"]["memory"] for c in made["spec"]["containers"]]
    assert stored == [write_canonical(text) for text in WRITTEN]
    exact = [t for t in WRITTEN if t not in {"100u", "1n"}]  # rounded up to a thousandth
    assert all(is_same_value(t, s) for t, s in zip(WRITTEN, stored, strict=True) if t in exact)
