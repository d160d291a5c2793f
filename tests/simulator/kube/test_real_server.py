"""The contract is honest only where the same tests also meet a real server."""

import pytest

from tests.servers import kube_apiserver
from tests.simulator.kube.conftest import Kube


def test_the_contract_met_a_real_server(kube: Kube) -> None:
    if kube_apiserver.assets() is None:
        pytest.skip(kube_apiserver.absence())
    ours = "fallow" in kube.ask("GET", "/version").body["gitVersion"]
    assert ours == (kube.name == "stand-in")
