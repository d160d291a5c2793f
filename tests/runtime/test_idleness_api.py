"""GET /v1/idleness, asked over HTTP about a living site: only what a policy would stop is yes."""

import json
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.journal import JournalState, event_types
from actions.journal.trust import trust_by_hand
from actions.policy.parser import read_policies
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.acting import plans
from runtime.operations.acting.configmap_switch import ConfigMapSwitch
from runtime.operations.analysis import idleness as operations
from runtime.operations.analysis.idleness import GateRefusal, Idleness, IdlenessReader
from runtime.service.api import ApiAccess
from runtime.service.endpoint import Endpoint
from runtime.service.idleness_api import IdlenessApi, RateLimit
from runtime.service.metrics import SelfMetrics
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.actions.loop.plant import EVERY, POLICY, Plant
from tests.actions.loop.site import SPACE
from tests.actions.places import door
from tests.servers.kube_apiserver import ADMIN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAST = timedelta(minutes=220)
TOKEN = "s3cret"
RULES = POLICY.replace("grace: 10m", "grace: 30m")
Reply = tuple[int, dict[str, Any], dict[str, str]]
WEB = ("c", SPACE, "Deployment", "web")
ROOT = Path(__file__).resolve().parents[2]


class Client:
    """A client of the endpoint over a plant."""

    def __init__(self, plant: Plant, endpoint: Endpoint, api: IdlenessApi) -> None:
        self.plant, self.api, self.url = plant, api, f"http://{endpoint.address}"

    def get(self, query: str, token: str = TOKEN) -> Reply:
        url = f"{self.url}/v1/idleness?{query}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, json.load(response), dict(response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error), dict(error.headers)

    def ask(self, name: str, **other: str) -> dict[str, Any]:
        workload = {"cluster": "c", "namespace": SPACE, "kind": "Deployment", "name": name}
        code, body, _ = self.get(urllib.parse.urlencode(workload | other))
        assert code == 200, body
        return body

    def again(self) -> None:
        """Let the next question be judged anew."""
        self.api.reader = IdlenessReader(self.plant.lake, self.config(), lambda: self.plant.now)

    def config(self) -> Settings:
        config = self.plant.config
        acting = config.actions.model_copy(update={"policies": self.plant.folder / "policy.yaml"})
        return config.model_copy(update={"actions": acting})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A site of three Deployments: one idle and ready to be stopped, one in use, one in part."""
    folder = tmp_path_factory.mktemp("site")
    metrics = SelfMetrics()
    api = IdlenessApi(ApiAccess(TOKEN, loopback=True), RateLimit(100_000), metrics.record_request)
    with Plant(folder, 4) as plant, Endpoint("127.0.0.1:0", metrics, idleness=api) as endpoint:
        plant.replicas_of("web", 1)
        plant.replicas_of("used", 1)
        plant.replicas_of("half", 2)
        for pod in plant.pods():
            name = pod["metadata"]["name"]
            plant.work[name] = 0.9 if name.startswith("used") else 0.0
        halves = [p["metadata"]["name"] for p in plant.pods()]
        plant.work[next(name for name in halves if name.startswith("half"))] = 0.9
        plant.live(PAST)
        plant.ready()
        plant.live(timedelta(minutes=30))
        # A site's policy waits for three samples at least; a person trusts it.
        path = plant.folder / "policy.yaml"
        path.write_text(RULES)
        record = JournalState(plant.journal()).catch_up()
        trust_by_hand(record, read_policies([path])[0], "admin", "a test")
        asking = Client(plant, endpoint, api)
        asking.again()
        yield asking


@pytest.fixture(scope="module")
def evaluation(client: Client) -> Any:
    """An evaluation in which the idle workload is actionable."""
    return operations._Evaluation(client.plant.lake, client.config(), client.plant.now)


def test_an_idle_workload_that_a_policy_would_stop_now_is_actionable(client: Client) -> None:
    reply = client.ask("web")
    assert reply["schema"] == "fallow.idleness/v1"
    assert (reply["state"], reply["evidence"], reply["actionable"]) == (
        "idle",
        "confirmed",
        True,
    ), reply
    assert reply["policy"] == "reclaim"
    assert "8 of 8 GPUs at or below 5%" in reply["why"]
    assert reply["gpus"] == 8
    at = datetime.fromisoformat(reply["at"])
    assert at == client.plant.now
    assert datetime.fromisoformat(reply["since"]) < at - timedelta(hours=2)
    assert timedelta(0) < datetime.fromisoformat(reply["valid_until"]) - at <= timedelta(minutes=1)
    assert re.fullmatch(r"[0-9a-f]{12}", reply["case"])


def test_what_is_in_use_is_busy_and_what_is_partly_so_is_never_actionable(client: Client) -> None:
    used = client.ask("used")
    assert (used["state"], used["actionable"]) == ("busy", False)
    half = client.ask("half")
    assert (half["state"], half["actionable"]) == ("partly_idle", False)
    for answer in (used, half):
        assert answer["refusals"][0]["gate"] == "verdict"
        assert answer["policy"] is None


@pytest.fixture
def restored(client: Client) -> Iterator[Client]:
    """The site; time, policy and freeze file are as before when the test ends."""
    plant = client.plant
    now, switch = plant.now, plant.folder / "FREEZE"
    yield client
    plant.now = now
    switch.unlink(missing_ok=True)
    (plant.folder / "policy.yaml").write_text(RULES)
    client.again()


def test_a_freeze_and_a_policy_that_only_notifies_are_refusals_at_once(restored: Client) -> None:
    plant = restored.plant
    switch, policy = plant.folder / "FREEZE", plant.folder / "policy.yaml"
    assert restored.ask("web")["actionable"] is True
    switch.write_text("an incident")
    reply = restored.ask("web")
    assert (reply["state"], reply["actionable"]) == ("idle", False)
    assert [r["refusal"] for r in reply["refusals"] if r["gate"] == "frozen"] == [
        f"frozen: the file {switch} exists"
    ]
    switch.unlink()
    policy.write_text(RULES.replace("mode: enforce", "mode: notify"))
    restored.again()
    reply = restored.ask("web")
    assert (reply["state"], reply["actionable"]) == ("idle", False)
    assert "mode" in {r["gate"] for r in reply["refusals"]}
    policy.unlink()
    restored.again()
    reply = restored.ask("web")
    assert reply["actionable"] is False
    assert any("no folder of policies" in r["refusal"] for r in reply["refusals"])
    assert JournalState(plant.journal()).catch_up().journal.entries(event_types.INTENT) == []


def with_switch(client: Client, server: KubeServer, *, acts: bool, token: str = ADMIN) -> None:
    """Let the endpoint read the switch of a cluster, as the service does."""
    config = client.config()
    acting = config.actions.model_copy(update={"enabled": acts})
    kubernetes = config.kubernetes.model_copy(update={"enabled": True})
    config = config.model_copy(update={"actions": acting, "kubernetes": kubernetes})
    switch = ConfigMapSwitch(config, lambda _: door(server.url, token=token))
    client.api.reader = IdlenessReader(
        client.plant.lake, config, lambda: client.plant.now, switch.why
    )


def frozen_by(said: dict[str, Any]) -> list[str]:
    assert said["actionable"] is not bool(said["refusals"])
    return [r["refusal"] for r in said["refusals"] if r["gate"] == "frozen"]


def test_nothing_is_actionable_while_a_configmap_freezes_or_cannot_be_read(
    restored: Client,
) -> None:
    store = ObjectStore(restored.plant.now.timestamp)
    store.create("Namespace", {"metadata": {"name": "fallow"}})
    with KubeServer(store) as server:
        with_switch(restored, server, acts=True)
        assert restored.ask("web")["actionable"] is True
        switch = {"metadata": {"name": "fallow-freeze", "namespace": "fallow"}}
        store.create("ConfigMap", {**switch, "data": {"frozen": "true"}})
        reply = restored.ask("web")
        assert (reply["state"], reply["actionable"]) == ("idle", False)
        assert frozen_by(reply) == ["frozen: ConfigMap fallow/fallow-freeze says so"]
        server.access.deny("get", "configmaps")
        assert "may say frozen" in frozen_by(restored.ask("web"))[0]
    assert "may say frozen" in frozen_by(restored.ask("web"))[0]


def test_a_site_that_does_not_act_has_the_configmap_switch_if_it_may_read_it(
    restored: Client,
) -> None:
    store = ObjectStore(restored.plant.now.timestamp)
    store.create("Namespace", {"metadata": {"name": "fallow"}})
    switch = {"metadata": {"name": "fallow-freeze", "namespace": "fallow"}}
    store.create("ConfigMap", {**switch, "data": {"frozen": "true"}})
    with KubeServer(store) as server:
        with_switch(restored, server, acts=False)
        assert frozen_by(restored.ask("web")) != []
        server.access.deny("get", "configmaps")
        with_switch(restored, server, acts=False)
        assert restored.ask("web")["actionable"] is True
    with_switch(restored, server, acts=False)
    assert "may say frozen" in frozen_by(restored.ask("web"))[0]


def test_stale_telemetry_is_unknown_and_so_is_what_the_analyzer_cannot_judge(
    restored: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = restored.plant
    now, plant.now = plant.now, plant.now + 6 * EVERY
    restored.again()
    for name in ("web", "used", "half"):
        reply = restored.ask(name)
        assert (reply["state"], reply["actionable"]) == ("unknown", False), reply
        assert "telemetry" in reply["why"]
    plant.now = now
    monkeypatch.setattr(plans, "gather_cases", lambda *_a, **_k: ([], ["idle is withheld: broken"]))
    restored.again()
    assert {restored.ask(n)["state"] for n in ("web", "used", "half")} == {"unknown"}


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("", 400, "cluster is missing"),
        ("cluster=c&namespace=team-a&kind=Deployment", 400, "name is missing"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=", 400, "name is no name"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=a&name=b", 400, "several times"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=web&x=1", 400, "no parameter 'x'"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=%00", 400, "name is no name"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=%ff", 400, "cannot be read"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=" + "a" * 254, 400, "no name"),
        ("&".join(f"a{n}=1" for n in range(40)), 400, "cannot be read"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=wep", 404, "Deployment/team-a/wep"),
        ("cluster=d&namespace=team-a&kind=Deployment&name=web", 404, "in cluster 'd'"),
        ("cluster=c&namespace=team-a&kind=deployment&name=web", 404, "deployment/team-a/web"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=we%25", 404, "we%"),
        ("cluster=c&namespace=team-a&kind=Deployment&name=';--", 404, "';--"),
    ],
)
def test_what_is_no_question_is_refused_and_is_no_permission(
    client: Client, query: str, code: int, says: str
) -> None:
    got, answer, _ = client.get(query)
    assert got == code, answer
    assert says in answer["error"]
    assert (answer["schema"], answer["state"], answer["actionable"]) == (
        "fallow.error/v1", "unknown", False,
    )  # fmt: skip


def test_access_methods_and_a_service_that_starts(client: Client) -> None:
    query = f"cluster=c&namespace={SPACE}&kind=Deployment&name=web"
    for token in ("", "wrong"):
        code, answer, _ = client.get(query, token)
        assert (code, answer["actionable"]) == (401, False)
    request = urllib.request.Request(f"{client.url}/v1/idleness", b"{}")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as error:
        assert error.code == 405
    reader, client.api.reader = client.api.reader, None
    code, answer, headers = client.get(query)
    client.api.reader = reader
    assert (code, answer["actionable"], headers["Retry-After"]) == (503, False, "5")


def test_without_a_token_only_programs_of_this_machine_are_answered() -> None:
    here = IdlenessApi(ApiAccess("", loopback=True), RateLimit(60))
    away = IdlenessApi(ApiAccess("", loopback=False), RateLimit(60))
    assert here.answer("", {"Host": "127.0.0.1:9410"}).code == 400
    assert here.answer("", {"Host": "evil.example"}).code == 403
    assert here.answer("", {"Host": "127.0.0.1", "Origin": "http://evil.example"}).code == 403
    assert away.answer("", {"Host": "127.0.0.1:9410"}).code == 403


def test_one_request_too_many_is_429_until_the_time_that_it_says() -> None:
    ticks = [0.0]
    api = IdlenessApi(ApiAccess(TOKEN, loopback=True), RateLimit(6, lambda: ticks[0]))
    good, bad = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Bearer x"}
    assert [api.answer("", bad).code for _ in range(20)] == [401] * 20, "strangers use up nothing"
    assert [api.answer("", good).code for _ in range(7)] == [400] * 6 + [429]
    answer = api.answer("", good)
    assert answer.headers == {"Retry-After": "10"}
    assert json.loads(answer.body)["actionable"] is False
    ticks[0] = 9.5
    assert api.answer("", good).code == 429
    ticks[0] = 10.5
    assert [api.answer("", good).code for _ in range(2)] == [400, 429]


def test_the_documented_client_stops_only_on_actionable(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/idleness-api.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(source, "idleness-api.md", "exec"), names)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return client.plant.now.astimezone(tz)

    monkeypatch.setitem(names, "datetime", Clock)
    may_stop = names["may_stop"]
    wanted = (client.url, TOKEN, "c", SPACE, "Deployment")
    assert may_stop(*wanted, "web") is True
    assert [may_stop(*wanted, name) for name in ("used", "half", "nope")] == [False] * 3
    assert may_stop(client.url, "wrong", *wanted[2:], "web") is False
    assert may_stop("http://127.0.0.1:9", *wanted[1:], "web") is False
    monkeypatch.setitem(names, "datetime", datetime)  # the answer is of a time long ago
    assert may_stop(*wanted, "web") is False


@pytest.mark.parametrize(
    "body",
    [
        b"", b"yes", b"[]", b"null", b'{"actionable": true}',
        b'{"schema": "fallow.idleness/v1", "actionable": true}',
        b'{"schema": "fallow.idleness/v1", "actionable": true, "valid_until": "soon"}',
        b'{"schema": "fallow.idleness/v1", "actionable": true, "valid_until": "2999-01-01"}',
        b'{"schema": "fallow.idleness/v1", "actionable": 1, "valid_until": "2999-01-01T00:00Z"}',
        b'{"schema": "fallow.idleness/v2", "actionable": true, "valid_until": "2999-01-01T00Z"}',
    ],
)  # fmt: skip
def test_the_documented_client_takes_no_other_answer_for_yes(body: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    page = (ROOT / "docs/idleness-api.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(source, "idleness-api.md", "exec"), names)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert names["may_stop"](url, TOKEN, "c", SPACE, "Deployment", "web") is False
        server.shutdown()


REFUSALS = st.lists(st.builds(GateRefusal, st.text(max_size=3), st.just("g"), st.text(max_size=3)))


@given(
    state=st.sampled_from(["busy", "idle", "partly_idle", "unknown"]),
    refusals=REFUSALS.map(tuple),
    policy=st.sampled_from([None, "", "reclaim"]),
)
def test_no_answer_can_be_built_that_stops_what_is_not_idle(
    state: Any, refusals: tuple[GateRefusal, ...], policy: str | None
) -> None:
    at = datetime.fromisoformat("2026-11-20T12:00Z")

    def build() -> Idleness:
        return Idleness(
            "c", "n", "k", "w", at, at, state, True, "", policy=policy, refusals=refusals
        )

    if state == "idle" and policy and not refusals:
        assert build().actionable
        return
    with pytest.raises(ValueError, match="is not actionable"):
        build()


@settings(max_examples=25, deadline=None)
@given(
    verdict=st.sampled_from(["idle", "partly idle"]),
    evidence=st.sampled_from(["confirmed", "suspected"]),
    ends=st.timedeltas(timedelta(0), timedelta(hours=3)),
    late=st.timedeltas(timedelta(0), timedelta(hours=2)),
)
def test_only_confirmed_idleness_of_the_whole_workload_that_lasts_is_actionable(
    evaluation: Any, verdict: Any, evidence: Any, ends: timedelta, late: timedelta
) -> None:
    """Every gate is open and the plan acts; the evidence is whatever it may be."""
    at, (case,) = evaluation.at, evaluation._facts[WEB]
    start = case.finding.window.start
    window = Window(start, max(at - ends, start + EVERY))
    finding = msgspec.structs.replace(
        case.finding, verdict=verdict, evidence=evidence, window=window
    )
    evaluation._facts[WEB] = [msgspec.structs.replace(case, finding=finding)]
    evaluation.at = at + late
    try:
        answer = evaluation.answer(WEB)
    finally:
        evaluation.at, evaluation._facts[WEB] = at, [case]
    assert answer is not None
    if answer.actionable:
        assert (answer.state, verdict, evidence) == ("idle", "idle", "confirmed")
        assert at + late - window.end <= 3 * EVERY
    if answer.state in ("partly_idle", "unknown", "busy"):
        assert not answer.actionable
        assert answer.refusals
    if verdict == "partly idle":
        assert answer.state != "idle"
