"""Lists arrive whole: page by page, over expired tokens, throttling and refusals."""

import msgspec
import pytest

from collectors.kube.shapes import Partial
from fallow.errors import SettingsError, SourceError, TemporaryError
from fallow.kube.api import ApiConnection, ApiError
from fallow.kube.api_objects import Page
from fallow.kube.listing import PARTIAL, Listing
from tests.kube.conftest import Cluster

PODS = "/api/v1/pods"


def pods(cluster: Cluster, count: int) -> None:
    for i in range(count):
        labels = {"padding": "x" * 2000}
        cluster.put("Pod", {"metadata": {"name": f"p{i}", "namespace": "a", "labels": labels}})


def listing(api: ApiConnection, limit: int = 2) -> Listing[Partial]:
    return Listing(api, PODS, msgspec.json.Decoder(Page[Partial]), limit=limit, accept=PARTIAL)


def names(found: Listing[Partial]) -> list[str]:
    return [item.metadata.name for page in found for item in page]


def test_pages_are_joined_and_asked_for_packed_with_the_token_of_the_kubeconfig(
    cluster: Cluster, api: ApiConnection
) -> None:
    pods(cluster, 5)
    assert names(listing(api)) == ["p0", "p1", "p2", "p3", "p4"]
    lists = [a for a in cluster.requests if a.path == PODS]
    assert [a.query.get("limit") for a in lists] == ["2", "2", "2"]
    assert {a.headers["accept-encoding"] for a in lists} == {"gzip"}
    assert {a.headers["authorization"] for a in lists} == {"Bearer secret-token"}


def test_an_expired_token_goes_on_with_the_fresh_one(cluster: Cluster, api: ApiConnection) -> None:
    pods(cluster, 5)
    cluster.faults.expire_tokens = 1
    found = listing(api)
    assert names(found) == ["p0", "p1", "p2", "p3", "p4"]
    assert (found.refreshed, found.restarts) == (1, 0)


def test_a_watch_begins_before_the_expiry_so_that_no_change_is_missed(
    cluster: Cluster, api: ApiConnection
) -> None:
    pods(cluster, 5)
    first = cluster.store.version
    found = listing(api)
    pages = iter(found)
    next(pages)
    cluster.faults.expire_tokens = 1
    pods(cluster, 1)  # changes p0, which has been read already
    list(pages)
    assert found.resource_version == str(first)


def test_an_expired_token_without_a_fresh_one_begins_anew(
    cluster: Cluster, api: ApiConnection, slept: list[float]
) -> None:
    pods(cluster, 5)
    cluster.faults.expire_tokens, cluster.faults.fresh_tokens = 1, False
    found = listing(api)
    assert names(found) == ["p0", "p1", "p0", "p1", "p2", "p3", "p4"]
    assert (found.refreshed, found.restarts, len(slept)) == (0, 1, 1)


def test_a_list_that_expires_for_ever_is_an_error(cluster: Cluster, api: ApiConnection) -> None:
    pods(cluster, 5)
    cluster.faults.expire_tokens, cluster.faults.fresh_tokens = 99, False
    with pytest.raises(
        ApiError, match="gone: /api/v1/pods: The provided continue parameter is too old"
    ):
        names(listing(api))


def test_throttling_waits_as_long_as_the_server_asks(
    cluster: Cluster, api: ApiConnection, slept: list[float]
) -> None:
    pods(cluster, 1)
    cluster.faults.throttle = [(429, "7"), (503, ""), (500, "")]
    assert names(listing(api)) == ["p0"]
    assert slept == [7.0, 1.0, 2.0]


def test_a_server_that_keeps_failing_is_reported_with_its_words(
    cluster: Cluster, api: ApiConnection
) -> None:
    cluster.faults.throttle = [(503, "")] * 9
    with pytest.raises(ApiError, match="HTTP 503: /api/v1/pods: slow down"):
        names(listing(api))


def test_a_server_that_is_away_is_temporary(
    cluster: Cluster, api: ApiConnection, slept: list[float]
) -> None:
    cluster.close()
    with pytest.raises(TemporaryError, match="no answer"):
        api.get(PODS)
    assert len(slept) == 4


def test_an_answer_that_is_no_list_is_named(cluster: Cluster, api: ApiConnection) -> None:
    cluster.put("Pod", {"metadata": {"name": "p", "namespace": "a", "labels": 7}})
    with pytest.raises(SourceError, match=r"/api/v1/pods: not a list: .*labels"):
        names(listing(api))


def test_an_unknown_context_names_the_legal_ones(cluster: Cluster) -> None:
    from fallow.kube.api import connect  # noqa: PLC0415

    assert cluster.url
    with pytest.raises(SettingsError, match=r"kubernetes.context 'nope'.*legal contexts: test"):
        connect("nope")
