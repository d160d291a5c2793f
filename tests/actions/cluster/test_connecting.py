"""Opening a door: a wrong context, a refused token or a dead server is one clear line."""

import json
from pathlib import Path
from typing import Any

import pytest

from actions.cluster.client import connect
from fallow.errors import AuthError, SettingsError, TemporaryError
from fallow.kube.api import BackOff
from fallow.settings import Settings, load
from tests.actions.places import Place


@pytest.fixture
def configured(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose kubeconfig knows the contexts `here` (current) and `dead`."""
    if place.server is None:
        pytest.skip("connecting is the same for every server")

    def cluster(name: str, url: str) -> dict[str, Any]:
        return {"name": name, "cluster": {"server": url}}

    def context(name: str) -> dict[str, Any]:
        return {"name": name, "context": {"cluster": name, "user": "me"}}

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster("here", place.kube.url), cluster("dead", "http://127.0.0.1:1")],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [context("here"), context("dead")],
        "current-context": "here",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    import kubernetes.config.kube_config as loader

    # The client reads KUBECONFIG once, when it is imported.
    monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    return load(environ={}, flags={"home": tmp_path, "cluster": "prod-1"}).settings


def test_a_door_bears_the_name_that_rows_give_the_cluster(configured: Settings) -> None:
    assert connect(configured).name == "prod-1"
    assert connect(configured, "here").get("/api/v1/namespaces/default") is not None


def test_a_wrong_context_is_named_with_the_legal_ones(configured: Settings) -> None:
    with pytest.raises(SettingsError, match="'prod'") as wrong:
        connect(configured, "prod")
    assert "legal contexts: here, dead" in str(wrong.value)


def test_a_server_that_does_not_answer_is_temporary(configured: Settings) -> None:
    with pytest.raises(TemporaryError, match="no answer") as away:
        connect(configured, "dead", pause=BackOff(sleep=lambda _: None))
    assert away.value.exit_code == 75
    assert "\n" not in str(away.value)


def test_a_token_that_is_not_taken_is_an_error_of_credentials(
    configured: Settings, place: Place
) -> None:
    assert place.server is not None
    place.server.faults.throttle = [(401, "")]
    with pytest.raises(AuthError, match="unauthorized") as refused:
        connect(configured)
    assert "token has expired" in str(refused.value)
    assert "secret" not in str(refused.value)
