"""Each fault that `fallow doctor` knows, at servers that have it, and the fix that it names."""

import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collectors.doctor import CheckRow, read_flavour
from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from runtime.operations.doctor import (
    channels,
    checks,
    cluster,
    pages,
    prices,
    source_checks,
    storage,
)
from runtime.operations.doctor.fault import build_fault_row
from tests.actions.places import Place, serving
from tests.servers import s3
from warehouse import maintenance
from warehouse.lake import Warehouse
from warehouse.tiers import move_to_cold

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WHOLE = """\
DCGM_FI_PROF_GR_ENGINE_ACTIVE{L} 0.5
DCGM_FI_PROF_SM_ACTIVE{L} 0.4
DCGM_FI_PROF_DRAM_ACTIVE{L} 0.3
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{L} 0.2
DCGM_FI_DEV_GPU_UTIL{L} 50
DCGM_FI_DEV_POWER_USAGE{L} 300
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{L} 123456
DCGM_FI_DEV_FB_USED{L} 1024
"""
DEVICE = 'gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA L4",Hostname="n"'
HELD = f'{{{DEVICE},namespace="ml",pod="train-0",container="main"}}'
FREE = f"{{{DEVICE}}}"


def set_up(tmp_path: Path, **flags: Any) -> Settings:
    dotted = {name.replace("__", "."): value for name, value in flags.items()}
    return load(environ={}, flags={"home": tmp_path / "home", **dotted}).settings


def by_check(rows: Any) -> dict[str, CheckRow]:
    """Return rows by check, once it is sure that each fault says what to do."""
    found = {row.check: row for row in rows}
    assert all(row.next_step for row in found.values() if row.status not in ("ok", "off")), found
    return found


@contextmanager
def web(answers: Mapping[str, tuple[int, bytes]], date: datetime | None = None) -> Iterator[str]:
    """Serve what is given for each path; `date` is what its clock says."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, b""))
            self.send_response_only(status)
            self.send_header("Date", format_datetime(date or datetime.now(UTC), usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ({"version": "3.5.0", "revision": "abc"}, "Prometheus 3.5.0"),
        ({"version": "2.17.0", "application": "Grafana Mimir"}, "Grafana Mimir 2.17.0"),
        ({"version": "2.24.0"}, "VictoriaMetrics or another that stands in"),
        ({}, "no build information"),
    ],
)
def test_a_server_is_named_by_its_build(build: dict[str, str], said: str) -> None:
    assert said in read_flavour(build)


def test_an_exporter_that_shows_all_is_ok(tmp_path: Path) -> None:
    with web({"/metrics": (200, WHOLE.replace("{L}", HELD).encode())}) as url:
        found = by_check(
            source_checks.check_exporters(set_up(tmp_path, exporters__targets=[url]), NOW)
        )
    assert {row.status for row in found.values()} == {"ok"}, found
    assert "1 of 1 devices name the pod" in found["labels"].finding
    assert "apart at most" in found["clock"].finding


def test_what_an_exporter_lacks_is_told_with_its_fix(tmp_path: Path) -> None:
    kept = [line for line in WHOLE.splitlines() if "SM_ACTIVE" not in line]
    text = "\n".join(kept).replace("{L}", FREE) + "\n"
    flags: dict[str, Any] = {"exporters__interval": "5m"}
    late = datetime.now(UTC) - timedelta(minutes=2)
    with web({"/metrics": (200, text.encode())}, late) as url:
        flags |= {"exporters__targets": [url, f"{url}/nothing"]}
        found = by_check(source_checks.check_exporters(set_up(tmp_path, **flags), NOW))
    assert found["targets"].status == "bad"
    assert "/nothing (HTTP 404" in found["targets"].finding
    assert "DCGM_FI_PROF_SM_ACTIVE, gauge, " in found["signals of NVIDIA L4"].next_step
    assert (found["labels"].status, found["interval"].status) == ("warn", "warn")
    assert "--kubernetes=true" in found["labels"].next_step
    assert "exporters.interval" in found["interval"].next_step
    assert (found["clock"].status, found["clock"].next_step) == ("bad", "synchronise both with NTP")


def test_targets_without_a_gpu_and_targets_that_are_none(tmp_path: Path) -> None:
    with web({"/metrics": (200, b"go_goroutines 7\n")}) as url:
        found = by_check(
            source_checks.check_exporters(set_up(tmp_path, exporters__targets=[url]), NOW)
        )
    assert found["telemetry"].status == "bad"
    assert "9400" in found["telemetry"].next_step
    wrong = set_up(tmp_path, exporters__targets=["ftp://x"], jupyter__servers=["nonsense"])
    assert by_check(source_checks.check_exporters(wrong, NOW))["targets"].status == "bad"


def test_a_notebook_server_that_is_away(tmp_path: Path) -> None:
    settings = set_up(tmp_path, jupyter__servers=["ml/nb-0=http://127.0.0.1:9/"])
    row = by_check(source_checks.check_notebooks(settings, NOW))["notebooks"]
    assert row.status == "bad"
    assert "jupyter.token" in row.next_step


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serving("stand-in", tmp_path) as (kube, server):
        yield Place(kube, server)


def test_rights_to_read_are_asked_of_the_api(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place.server is not None
    settings = set_up(tmp_path, kubernetes__enabled=True)
    api = place.door._api
    found = by_check(cluster.check_cluster(settings, api))
    assert found["kubernetes"].finding.startswith(place.kube.url)
    assert found["rights to read"].status == "ok"
    assert found["watch"].status == "ok"
    place.server.access.deny("watch", "pods")
    row = by_check(cluster.check_cluster(settings, api))["watch"]
    assert (row.status, "/api/v1/pods cannot be watched" in row.finding) == ("warn", True)
    monkeypatch.setattr(cluster, "_check_watch", lambda _api, row=row: row)  # two seconds each
    place.server.access.denials.clear()
    place.server.access.deny("list", "resourcequotas")
    row = by_check(cluster.check_cluster(settings, api))["rights to read"]
    assert (row.status, "list resourcequotas" in row.finding) == ("warn", True)
    place.server.access.deny("list", "pods")
    row = by_check(cluster.check_cluster(settings, api))["rights to read"]
    assert row.status == "bad"
    assert "deploy/rbac/reader.yaml" in row.next_step


def test_a_cluster_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    settings = set_up(tmp_path, kubernetes__enabled=True, kubernetes__context="nowhere")
    row = by_check(cluster.check_cluster(settings))["kubernetes"]
    assert row.status == "bad"
    assert not list(cluster.check_cluster(set_up(tmp_path)))


def test_prices_that_are_old_or_cannot_be_read(tmp_path: Path) -> None:
    assert by_check(prices.check_prices(set_up(tmp_path), NOW))["prices"].status == "ok"
    later = NOW + timedelta(days=3650)
    old = by_check(prices.check_prices(set_up(tmp_path), later))["prices"]
    assert (old.status, "prices.rate_card" in old.next_step) == ("warn", True)
    absent = set_up(tmp_path, prices__rate_card=str(tmp_path / "none.csv"))
    row = by_check(prices.check_prices(absent, NOW))["prices"]
    assert (row.status, "none.csv" in row.finding) == ("bad", True)
    model = set_up(tmp_path, prices__by_model={"H1000": "1"})
    assert "legal" in by_check(prices.check_prices(model, NOW))["prices"].next_step


def test_gpu_hours_without_a_price_are_named_by_model(settings: Settings) -> None:
    hour = (NOW - timedelta(hours=2)).replace(tzinfo=None)
    shared = {"cluster": "c", "bucket": hour, "state": "idle", "gpu_seconds": 3600.0}
    rows = [
        {**shared, "device": "GPU-1", "model": "B300", "priced": False},
        {**shared, "device": "GPU-2", "model": "L4", "priced": True},
    ]
    columns: dict[str, object] = {name: [row[name] for row in rows] for name in rows[0]}
    for name in ("namespace", "workload_kind", "workload"):
        columns[name] = ["", ""]
    with Warehouse.open(settings, write=True) as warehouse:
        assert not list(prices.check_unpriced(warehouse, NOW))
        warehouse.replace("ledger", Batch.of("ledger", columns).rows)
        row = by_check(prices.check_unpriced(warehouse, NOW))["priced"]
    assert (row.status, row.finding.endswith("B300 1.0")) == ("warn", True)
    assert "prices.by_model" in row.next_step


def test_the_last_week_of_prices_has_168_hours(settings: Settings) -> None:
    newest = (NOW - timedelta(hours=2)).replace(tzinfo=None)
    hours = [newest - timedelta(hours=n) for n in range(170)]
    row = {"cluster": "c", "device": "GPU-1", "model": "L4", "state": "idle", "priced": True}
    row |= {"namespace": "", "workload_kind": "", "workload": "", "gpu_seconds": 3600.0}
    columns: dict[str, object] = {name: [value] * len(hours) for name, value in row.items()}
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.replace("ledger", Batch.of("ledger", columns | {"bucket": hours}).rows)
        found = by_check(prices.check_unpriced(warehouse, NOW))["priced"].finding
    assert found == "all 168.0 GPU-hours of the last week have a price"


def test_folders_that_cannot_be_written_and_disks_that_are_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_check(storage.check_storage(set_up(tmp_path)))["home"].status in ("ok", "warn")
    (tmp_path / "file").write_text("no folder")
    blocked = set_up(tmp_path, warehouse__cold=str(tmp_path / "file" / "cold"))
    row = by_check(storage.check_storage(blocked))["warehouse.cold"]
    assert (row.status, "is a file" in row.finding) == ("bad", True)
    for free, status in ((storage.MIN_FREE_BYTES - 1, "bad"), (storage.LOW_FREE_BYTES - 1, "warn")):
        monkeypatch.setattr(storage, "get_free_bytes", lambda _path, said=free: said)
        row = by_check(storage.check_storage(set_up(tmp_path)))["home"]
        assert (row.status, "warehouse.raw_days" in row.next_step) == (status, True)
    monkeypatch.setattr("os.access", lambda *_: False)
    row = by_check(storage.check_storage(set_up(tmp_path)))["home"]
    assert (row.status, "chmod" in row.next_step) == ("bad", True)


@pytest.mark.xdist_group("s3")
def test_buckets_are_written_read_and_tidied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")

    def asked(endpoint: str, bucket: str) -> CheckRow:
        flags = {"warehouse__cold": f"s3://{bucket}/cold", "warehouse__s3.endpoint": endpoint}
        return by_check(storage.check_storage(set_up(tmp_path, **flags)))["warehouse.cold"]

    with s3.serving() as endpoint:
        s3.make_bucket(endpoint, "there")
        assert asked(endpoint, "there").status == "ok"
        from warehouse.cold_storage import open_store  # noqa: PLC0415

        flags = {"warehouse__cold": "s3://there/cold", "warehouse__s3.endpoint": endpoint}
        assert not list(open_store(set_up(tmp_path, **flags)).listed()), "nothing is left behind"
        none = asked(endpoint, "absent")
        assert (none.status, "create it" in none.next_step) == ("bad", True)
    away = asked(endpoint, "there")
    assert away.status == "away"
    assert endpoint in away.next_step
    assert "warehouse.s3.endpoint" in away.next_step


class Greeting(socketserver.StreamRequestHandler):
    """A mail server that greets, knows one password, and must never be given a message."""

    def handle(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            word = line.upper().split()[0]
            self.server.heard.append(word)  # type: ignore[attr-defined]
            if word == "EHLO":
                self._say("250-test")
                self._say("250 AUTH PLAIN")
            elif word == "AUTH":
                self._say("535 no")
            elif word == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail() -> Iterator[tuple[int, list[str]]]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeting) as server:
        server.heard = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1], server.heard  # type: ignore[attr-defined]
        server.shutdown()


def channel(tmp_path: Path, url: str) -> CheckRow:
    flags = {"notices__channels": {"team": {"url": url}}, "notices__timeout": "2s"}
    return by_check(channels.check_channels(set_up(tmp_path, **flags)))["channel team"]


def test_a_mail_server_is_greeted_and_nothing_is_sent(tmp_path: Path) -> None:
    people = "?from=fallow@x.test&to=ann@x.test"
    with mail() as (port, heard):
        assert channel(tmp_path, f"mailto://127.0.0.1:{port}/{people}").status == "ok"
        assert heard[-1] == "QUIT"
        assert not {"MAIL", "RCPT", "DATA"} & set(heard)
        refused = channel(tmp_path, f"mailto://ann:wrong@127.0.0.1:{port}/{people}")
        assert (refused.status, "SMTP 535" in refused.finding) == ("bad", True)
        assert "wrong" not in refused.finding + refused.next_step
        plain = channel(tmp_path, f"mailtos://127.0.0.1:{port}/{people}")
        assert plain.status in ("bad", "away")
    away = channel(tmp_path, f"mailto://127.0.0.1:{port}/{people}")
    assert (away.status, "notices.channels.team.url" in away.next_step) == ("away", True)


def test_channels_that_are_none_or_away(tmp_path: Path) -> None:
    with web({}) as url:
        assert channel(tmp_path, url.replace("http", "json")).status == "ok"
    away = channel(tmp_path, url.replace("http", "json"))
    assert (away.status, "nothing was sent" in away.finding) == ("away", False)
    none = channel(tmp_path, "carrier-pigeon://roof")
    assert (none.status, "mailto://" in none.next_step) == ("bad", True)
    acting = set_up(tmp_path, actions__enabled=True)
    assert by_check(channels.check_channels(acting))["notices"].next_step.endswith(
        "notices.default"
    )


def test_extras_ports_and_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web({"/_stcore/health": (200, b"ok"), "/healthz": (503, b"")}) as url:
        listen = url.removeprefix("http://")
        settings = set_up(tmp_path, dashboard__listen=listen, service__listen=listen)
        found = by_check(pages.check_pages(settings))
    assert found["dashboard"].finding.startswith("it runs")
    assert (found["service"].status, "service.listen" in found["service"].next_step) == (
        "bad",
        True,
    )
    free = set_up(tmp_path, dashboard__listen="127.0.0.1:0", service__listen="nonsense")
    found = by_check(pages.check_pages(free))
    assert (found["dashboard"].status, found["service"].status) == ("ok", "bad")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    row = by_check(pages.check_pages(free))["extra dashboards"]
    assert (row.status, row.next_step) == (
        "warn",
        "in Fallow's checkout: pip install '.[dashboards]'",
    )


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/good", "ok", "https://id.example answers"),
        ("/none", "bad", "HTTP 404"),
        ("/html", "bad", "names no issuer"),
    ],
)
def test_the_provider_of_sign_in(path: str, status: str, said: str) -> None:
    good = json.dumps({"issuer": "https://id.example"}).encode()
    with web({"/good": (200, good), "/html": (200, b"<html>")}) as url:
        row = pages.check_provider(f"{url}{path}")
    assert (row.status, said in row.finding) == (status, True), row
    assert status == "ok" or "metadata_url" in row.next_step
    assert pages.check_provider(f"{url}{path}").status == "away"
    assert pages.check_provider("file:///etc/passwd").status == "bad"


def opening(error: Exception) -> Any:
    def fail() -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WarehouseError("there is no warehouse", hint="fallow demo"), "warn"),
        (TemporaryError("the warehouse is in use"), "away"),
    ],
)
def test_a_warehouse_that_is_not_there_or_in_use(
    error: Exception, status: str, tmp_path: Path
) -> None:
    settings = set_up(tmp_path, dashboard__listen="127.0.0.1:0", service__listen="127.0.0.1:0")
    rows = checks.run_checks(settings, now=NOW, opening=opening(error))
    found = {row["check"]: row for row in rows}
    assert found["warehouse"]["status"] == status
    assert found["warehouse"]["next_step"]
    assert found["sources"]["status"] == "bad"
    assert "prometheus.url" in found["sources"]["next_step"]


def test_a_warehouse_without_telemetry_hides_no_other_check(tmp_path: Path) -> None:
    settings = set_up(tmp_path, dashboard__listen="127.0.0.1:0", service__listen="127.0.0.1:0")
    Warehouse.open(settings, write=True).close()
    rows = checks.run_checks(settings, now=NOW, opening=lambda: Warehouse.open(settings))
    found = {row["check"]: row for row in rows}
    assert (found["warehouse"]["status"], found["rows"]["status"]) == ("ok", "warn")
    assert "fallow collect --once" in found["rows"]["next_step"]
    assert found["sources"]["status"] == "bad"


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(("ok", "warn"), 0), (("ok", "away"), 75), (("away", "bad"), 1), ((), 0)],
)
def test_exit_codes(statuses: tuple[str, ...], code: int) -> None:
    assert checks.exit_code([{"status": status} for status in statuses]) == code


def test_an_error_without_a_hint_bears_the_check_s_own() -> None:
    row = build_fault_row("x", WarehouseError("damaged"), "put it back")
    assert (row.status, row.next_step) == ("bad", "put it back")
    assert build_fault_row("x", TemporaryError("away", hint="wait"), "else").next_step == "wait"


@pytest.mark.parametrize(("room", "status"), [(3, "ok"), (2, "warn")])
def test_live_files_are_counted_against_their_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, status: str
) -> None:
    with Warehouse.open(set_up(tmp_path), write=True) as warehouse:
        empty = maintenance.count_files(warehouse)
        monkeypatch.setattr("warehouse.maintenance.MOST_LIVE_FILES", empty.live + room)
        for hour in range(3):
            instant = datetime(2026, 11, 20, hour)  # noqa: DTZ001
            columns: dict[str, object] = {"cluster": ["c"], "device": ["GPU-1"], "ts": [instant]}
            warehouse.ingest([Batch.of("sample", columns)])
        row = storage.check_warehouse(warehouse)
        assert row.status == status
        assert f"{empty.live + 3} live files of at most {empty.live + room}" in row.finding
        assert ("fallow warehouse compact" in row.next_step) is (status == "warn")
        assert f"replaced ones of at most {maintenance.MOST_REPLACED_FILES:,}" in row.finding
        maintenance.compact_warehouse(warehouse)
        after = maintenance.count_files(warehouse)
        assert storage.check_warehouse(warehouse).status == "ok"
    assert after.live <= empty.live + 1
    assert after.replaced >= empty.replaced + 3


def test_an_archive_folder_that_is_not_mounted_is_named(tmp_path: Path) -> None:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    settings = set_up(tmp_path)
    archive = tmp_path / "archive"
    places = settings.warehouse.model_copy(update={"cold": str(archive)})
    settings = settings.model_copy(update={"warehouse": places})
    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        for day in (1, 2):
            instant = datetime(2026, 11, day)  # noqa: DTZ001
            columns: dict[str, object] = {"cluster": ["c"], "device": ["GPU-1"], "ts": [instant]}
            warehouse.ingest([Batch.of("sample", columns)])
        move_to_cold(warehouse, now)
        assert list(storage.check_archive(warehouse)) == []
        archive.rename(tmp_path / "elsewhere")
        archive.mkdir()  # the mount point
        [row] = storage.check_archive(warehouse)
    assert (row.check, row.status) == ("archive", "away")
    assert f"2 archived days are in {archive}, which is missing or empty" in row.finding
