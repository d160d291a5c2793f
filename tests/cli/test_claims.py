"""Who is charged for a GPU: a pod takes nothing by naming GPUs that are not its own.

One node of four GPUs at 2 USD per GPU-hour; `train` holds all of them from 04:00 to 06:00, and
dcgm-exporter names it: 8 GPU-hours, 16.00 USD.
"""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Fallow
from tests.kube.objects import Object, node, pod

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
START, END = NOW - timedelta(hours=3), NOW - timedelta(hours=1)
GPUS = tuple(f"GPU-{n}" for n in range(4))
ALL = ":".join(f"{gpu},NVIDIA,81920,100" for gpu in GPUS) + ":"
CLAIM = "hami.io/vgpu-devices-allocated"
REGISTER = "hami.io/node-nvidia-register"
FOUR = {"nvidia.com/gpu": "4"}


def bound(item: Object) -> Object:
    """Return the pod as it runs since an hour before the first sample."""
    at = f"{START - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    item["metadata"]["creationTimestamp"] = at
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    item["status"] = {**item["status"], "startTime": at, "conditions": [condition]}
    return item


def thief(n: int = 0, *, on: str = "a", limits: Object | None = None, text: str = ALL) -> Object:
    return pod(f"thief-{n}", namespace="evil", node=on, limits=limits, annotations={CLAIM: text})


def lines(
    gpus: tuple[str, ...], host: str, name: str, util: int, offset: int = 0, **labels: str
) -> list[str]:
    namespace, _, pod_name = name.partition("/")
    text = []
    for minute in range(120):
        at = int((START + timedelta(minutes=minute, seconds=offset)).timestamp() * 1000)
        for gpu in gpus:
            words = {"UUID": gpu, "Hostname": host, "modelName": "NVIDIA H100 80GB HBM3"}
            words |= {"exported_namespace": namespace, "exported_pod": pod_name, **labels}
            said = ",".join(f'{k}="{v}"' for k, v in words.items())
            text.append(f"DCGM_FI_DEV_GPU_UTIL{{{said}}} {util} {at}")
            text.append(f"DCGM_FI_DEV_FB_USED{{{said}}} 60000 {at}")
    return text


class Site:
    """A home, its dump and its samples, by the command line."""

    def __init__(self, fallow: Fallow, folder: Path) -> None:
        self._fallow, self._folder = fallow, folder
        (folder / "fallow.yaml").write_text(
            f"cluster: c\nhome: {folder / 'home'}\nprices: {{usd_per_gpu_hour: '2.00'}}\n"
        )

    def run(self, *words: str | Path) -> Any:
        ran = self._fallow(*words, "-o", "json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out, parse_float=Decimal)

    def load(self, objects: list[Object], *samples: list[str]) -> None:
        dump = self._folder / "dump.json"
        dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        self.run("import", "kubectl", dump)
        for at, text in enumerate(samples):
            file = self._folder / f"{at}.prom"
            file.write_text("\n".join(text) + "\n")
            self.run("import", "exposition", "--interval", "60s", file)

    def bill(self) -> dict[str, Decimal]:
        """Return USD by namespace of the two hours."""
        span = f"{START:%Y-%m-%dT%H:%M:%SZ}/{END:%Y-%m-%dT%H:%M:%SZ}"
        rows = self.run("spend", "--by", "namespace", "--window", span)["spend"]
        return {row["namespace"]: Decimal(row["usd"]) for row in rows}

    def query(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.run("warehouse", "query", sql)["rows"]
        return rows


@pytest.fixture
def site(fallow: Fallow, tmp_path: Path) -> Site:
    return Site(fallow, tmp_path)


HONEST = lines(GPUS, "a", "ml/train", 95)
TRAIN = pod("train", node="a", limits=FOUR)


GPUS_OF = {"nvidia.com/gpu": "1"}


def test_a_claim_needs_a_request_and_a_device_of_its_node(site: Site) -> None:
    """Twenty pods name the four GPUs; `evil` pays for its own GPU of node b and no other one.

    `evil/own` holds GPU-b for two hours: 4.00 USD. An exporter of its own names it on the GPUs of
    node a as well; its node b reports more devices than it has.
    """
    own = pod("own", namespace="evil", node="b", limits=GPUS_OF, annotations={CLAIM: ALL})
    b = node("b", capacity=GPUS_OF)
    thieves = [bound(thief(n)) for n in range(20)]
    ghost = lines(GPUS, "a", "evil/thief-0", 95, offset=15)
    far = lines(GPUS, "b", "evil/own", 95, offset=30)
    far += lines(("GPU-b",), "b", "evil/own", 95)
    objects = [node("a", capacity=FOUR), b, bound(TRAIN), bound(own), *thieves]
    site.load(objects, HONEST + ghost + far)
    bill = site.bill()
    assert (bill["ml"], bill["evil"]) == (Decimal("16.00"), Decimal("4.00"))
    rows = site.query("SELECT name, reason FROM rejection WHERE kind = 'allocation'")
    reasons: dict[str, set[str]] = {row["name"]: set() for row in rows}
    for row in rows:
        reasons[row["name"]].add(row["reason"])
    assert len(reasons) == 21
    assert "it names GPU-0 and requests no GPU" in reasons["thief-19"]
    assert [len(reasons[name]) for name in ("thief-0", "own")] == [2, 1]


def test_an_annotation_gets_what_is_left_and_at_most_its_request(site: Site) -> None:
    """Without a register the node's telemetry decides, and the kubelet's holder comes first.

    `evil/thief-0` requests a GPU of node a, which has five: it claims four others. Where nobody
    else is known on GPU-4, `two/half` requests and claims a half of it: 2 h x 2 USD x 0.5.
    """
    half = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50"}
    two = pod("half", namespace="two", node="a", limits=half, annotations={CLAIM: "GPU-4,N,0,100:"})
    greedy = thief(limits=GPUS_OF, text=ALL)
    objects = [node("a", capacity={"nvidia.com/gpu": "5"}), *map(bound, (TRAIN, two, greedy))]
    site.load(objects, HONEST + lines(("GPU-4",), "a", "/", 95))
    bill = site.bill()
    assert (bill["ml"], bill["two"]) == (Decimal("16.00"), Decimal("2.00"))
    assert "evil" not in bill


def test_time_slicing_needs_a_request_and_a_node_and_names_no_more_than_requested(
    site: Site,
) -> None:
    """Before: `thief-0` without a request took 8.00 USD, `own` of node b as much, and `greedy`.

    `greedy` runs on node a and requests one GPU; a second exporter names it on the four of `train`.
    """
    own = pod("own", namespace="evil", node="b", limits=GPUS_OF)
    greedy = pod("greedy", namespace="evil", node="a", limits=GPUS_OF)
    pods = [bound(item) for item in (TRAIN, thief(), own, greedy)]
    a, b = node("a", capacity={"nvidia.com/gpu": "5"}), node("b", capacity=GPUS_OF)
    sliced = [lines(GPUS, "a", f"evil/{name}", 95, vgpu="1") for name in ("thief-0", "own")]
    more = lines(GPUS, "a", "evil/greedy", 95, offset=15)
    site.load([a, b, *pods], HONEST + sliced[0] + sliced[1] + more)
    bill = site.bill()
    assert bill["ml"] == Decimal("16.00")
    assert "evil" not in bill
    reasons = {row["name"]: row["reason"] for row in site.query("FROM rejection")}
    assert reasons["thief-0"].endswith("it requests no GPU")
    assert reasons["own"].endswith("it does not run on the node of the GPU")


def test_a_resource_claim_that_gives_no_device_is_listed(site: Site) -> None:
    """Pod `far` runs on node b, and a slice of node a has its GPU; no slice has that of `ghost`."""
    group = {"apiVersion": "resource.k8s.io/v1"}
    driver = {"driver": "gpu.nvidia.com", "pool": "a"}
    card = {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-0"}}}
    spec = {**driver, "pool": {"name": "a"}, "nodeName": "a", "devices": [card, {"name": "nic-0"}]}
    objects = [{**group, "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": spec}]
    for name, place, device in (
        *(("own", "a", "gpu-0"), ("far", "b", "gpu-0")),
        *(("ghost", "a", "gpu-9"), ("net", "a", "nic-0")),
    ):
        objects.append(pod(name, namespace="ml", node=place))
        user = {"resource": "pods", "name": name, "uid": f"pod-{name}"}
        results = [{**driver, "device": device, "request": "gpu"}]
        status = {"reservedFor": [user], "allocation": {"devices": {"results": results}}}
        meta = {"name": name, "namespace": "ml"}
        objects.append({**group, "kind": "ResourceClaim", "metadata": meta, "status": status})
    site.load([node("a"), node("b"), *objects])
    rows = site.query("SELECT name, reason FROM rejection ORDER BY name")
    assert [(row["name"], row["reason"]) for row in rows] == [
        ("far", "GPU-0 is no device of its node b"),
        ("ghost", "gpu.nvidia.com/a/gpu-9 is no device of its node a"),
    ]
    assert site.query("SELECT pod FROM pod WHERE devices LIKE '%GPU%'") == [{"pod": "own"}]


@pytest.mark.parametrize("is_known", [True, False])
def test_of_two_exporters_of_a_gpu_the_inventory_believes_one_or_none(
    site: Site, is_known: bool
) -> None:
    """`train` idles on node a; the exporter of node b names its GPU-0 and GPU-1 too, busy.

    A second one says of node a's other two that they are busy. With exporters' pods in the dump and
    node b full, that of node a is believed: idle. Else these hours are unknown, never half of both.
    """
    honest = lines(GPUS, "a", "ml/train", 0, instance="10.0.0.1:9400")
    moved = lines(GPUS[:2], "b", "/", 95, offset=30, instance="10.0.0.7:9400")
    moved += lines(("GPU-b",), "b", "/", 95, instance="10.0.0.7:9400")
    second = lines(GPUS[2:], "a", "/", 95, offset=15, instance="10.0.0.9:9400")
    objects = [node("a", capacity=FOUR), bound(TRAIN)]
    objects.append(node("b", capacity=GPUS_OF if is_known else {"nvidia.com/gpu": "8"}))
    for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.7")) if is_known else ():
        exporter = pod(f"dcgm-exporter-{name}", node=name)
        exporter["status"]["podIP"] = address
        objects.append(exporter)
    site.load(objects, honest + moved + second)
    bill = site.bill()
    assert bill["ml"] == Decimal("16.00")
    rows = site.query(
        "SELECT node, state, count(DISTINCT device) AS n FROM ledger WHERE namespace = 'ml' "
        "GROUP BY ALL ORDER BY state"
    )
    states = [(row["node"], row["state"], row["n"]) for row in rows]
    assert states == [("a", "idle" if is_known else "unknown", 4)]
    assert bill["(platform)"] == (Decimal("4.00") if is_known else Decimal("32.00"))
    reasons = site.query("SELECT name, reason FROM rejection WHERE kind = 'sample' ORDER BY name")
    assert [row["name"] for row in reasons] == list(GPUS)
    ending = "the first is believed" if is_known else "unknown"
    assert all(row["reason"].endswith(ending) for row in reasons)
