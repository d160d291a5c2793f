"""The service watches: what lives between two lists is in the inventory; it ends when told to.

The API is the stub, and a real kube-apiserver where one is at hand.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collectors.kube.list_watch import ListWatch
from collectors.kube.shapes import Partial
from fallow.settings import Settings, load
from runtime.service.loop import serve
from runtime.service.roles import ServiceRole
from tests.actions.places import Place, serving
from tests.servers import kube_apiserver as real
from warehouse.lake import Warehouse

WAIT_S = 60.0
"""Only a fault waits so long."""


@pytest.fixture(params=real.BACKENDS)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Return a server whose kubeconfig is the current one."""
    with serving(request.param, tmp_path) as (kube, server):
        entry: dict[str, Any] = {"server": kube.url}
        if kube.ca:
            entry["certificate-authority"] = kube.ca
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": entry}],
            "users": [{"name": "test", "user": {"token": real.ADMIN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        import kubernetes.config.kube_config as loader

        # The client reads KUBECONFIG once, when it is imported.
        monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        yield Place(kube, server)


@contextmanager
def service(folder: Path, stop: threading.Event) -> Iterator[Settings]:
    """Run a collector's service that lists once an hour and stores changes every second."""
    settings = load(
        environ={},
        flags={
            "home": folder / "home", "cluster": "c", "kubernetes.enabled": True,
            "service.listen": "127.0.0.1:0", "service.inventory_every": "1h",
            "service.collect_every": "1s", "prices.usd_per_gpu_hour": "2",
        },
    ).settings  # fmt: skip
    failed: list[BaseException] = []

    def run() -> None:
        try:
            serve(settings, stop, roles=[ServiceRole.collector])
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield settings
    finally:
        stop.set()
        thread.join(WAIT_S)
    assert not thread.is_alive()
    assert failed == []


def a_pod(name: str) -> dict[str, Any]:
    asks = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "x", "resources": asks}
    return {"metadata": {"name": name}, "spec": {"nodeName": "n0", "containers": [container]}}


def wait(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_pod_between_two_lists_is_in_the_inventory_with_its_end(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fallow")
    place.make("Pod", a_pod("stays"))
    stop = threading.Event()

    def stored() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.name == "fallow.service"]

    with service(tmp_path, stop) as settings:
        wait(lambda: "collected" in stored())
        place.make("Pod", a_pod("brief"))
        wait(lambda: "watched" in stored())
        path = f"{place.path('Pod', 'brief')}?gracePeriodSeconds=0"
        assert place.kube.ask("DELETE", path).code == 200
        before = stored().count("watched")
        wait(lambda: stored().count("watched") > before)
    assert stored()[-1] == "stopped; nothing is half-written"
    assert not [t for t in threading.enumerate() if t.name.startswith("watch /api")]
    with Warehouse.open(settings) as warehouse:
        rows = warehouse.query(
            "SELECT pod, gpu_request, epoch(finished_at) - epoch(first_seen) AS lived FROM pod "
            "WHERE namespace = $space ORDER BY pod",
            {"space": place.name},
        ).to_pylist()
    assert [(r["pod"], r["gpu_request"]) for r in rows] == [("brief", 1.0), ("stays", 1.0)]
    assert 0 < rows[0]["lived"] < WAIT_S
    assert rows[1]["lived"] is None
    if place.server is not None:
        wanted = [a for a in place.server.requests if a.path == "/api/v1/pods"]
        assert len([a for a in wanted if not a.query.get("watch")]) == 1


def test_a_version_that_is_gone_leads_to_a_list(place: Place) -> None:
    maps = place.path("ConfigMap")
    api = place.door._api
    place.make("ConfigMap", {"metadata": {"name": "a"}})
    watch = ListWatch(api, maps, Partial, limit=10)
    stop = threading.Event()
    steps = watch.steps(stop)

    def until(kind: str) -> list[str]:
        answer = []
        for step in steps:
            answer.append(f"{step.kind} {step.object.metadata.name if step.object else ''}".strip())
            if step.kind == kind:
                return answer
        raise AssertionError

    assert [w for w in until("SYNCED") if w.endswith(" a")] == ["LISTED a"]
    made = place.make("ConfigMap", {"metadata": {"name": "b"}})
    place.kube.ask("DELETE", place.path("ConfigMap", "a"))
    place.make("ConfigMap", {"metadata": {"name": "c"}})
    newest = place.get("ConfigMap", "c") or made
    place.kube.compact(int(newest["metadata"]["resourceVersion"]))
    answer = until("SYNCED")
    stop.set()
    watch.close()
    assert "LISTED b" in answer
    assert "LISTED a" not in answer
    assert (watch.progress.expiries, watch.progress.lists) == (1, 2)
