"""Run the service among faults and count what it acknowledged: make soak, or python -m tests.soak.

The service, ten exporters, Prometheus, PostgreSQL (the catalog), an S3 store (the archive), a
simulated API server, a reader, and a canary that is stopped and restored. A schedule of faults,
drawn from a seed, is made for real: SIGKILL, SIGTERM, exporters that hang, drip and bomb, ports
closed, servers that hang, a full disk, a stepped clock. At the end stored rows and actions are
held to a ledger of the soak's own. Exit code 1: a check does not hold; 75: a server is missing.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from runtime.service.opening import open_queue
from runtime.service.roles import ServiceRole
from tests.soak.faults import KINDS, PlannedFault, plan_faults
from tests.soak.ledger import Check, Interruptions, check_actions, check_rows, read_notes
from tests.soak.site import EXPORTERS, GPUS, GRACE_S, SoakSite
from warehouse.lake import Warehouse

RECOVERY_S = 180.0
"""After the last fault: everything must be collected again within this time."""
CANARY_EVERY_S = 12.0
CANARY_ENDS_S = 360.0
"""A run ends within the Lease of a killed one, `actions.stick` and two waits of its own timeout."""
STEP_S = 3600.0
OF_CLOCKS = ("audit future", "audit energy")
MEMORY_MB = 700.0
"""The bound for 64 GPUs at 15 s; the soak has 44 GPUs at 2 s."""
GROWTH = 1.1
"""How much more the median of the last quarter may be than that of the third one: a plateau, with
some noise. The peak of a quarter depends on the faults in it: a restart, a bomb, rows that wait."""
PLATEAU_FROM_S = 600.0
"""A shorter soak is still filling its caches; its growth is printed and not judged."""


SKIPPED = 75
"""The exit code where this machine lacks a server."""
STORES = ("postgresql", "s3", "disk")
"""First words of faults after which rows may wait in the service's memory."""
EXPORTER_FAULTS = {
    "exporter hangs": "hang",
    "exporter drips": "drip",
    "exporter bombs": "bomb",
    "exporter refuses": "refuse",
}


class Fault(NamedTuple):
    """How one kind of fault begins and ends."""

    begin: Callable[[], object]
    end: Callable[[], object] = lambda: None


class Times:
    """The seconds of each part of a soak, in order."""

    def __init__(self) -> None:
        self._last, self._parts = time.monotonic(), dict[str, float]()

    def end(self, part: str) -> None:
        """Note that a part ended now; the next one begins."""
        now = time.monotonic()
        self._parts[part], self._last = now - self._last, now

    def __str__(self) -> str:
        listed = [f"{part} {seconds:.0f}" for part, seconds in self._parts.items()]
        return f"{', '.join(listed)}; {sum(self._parts.values()):.0f} in all"


class Soak:
    """One soak: the site, its faults, and the runs of its canary."""

    def __init__(self, site: SoakSite, seed: int) -> None:
        self.site, self.chance = site, random.Random(seed)
        self.fault_counts: Counter[str] = Counter()
        self.skipped: set[str] = set()
        self.passed_runs = self.hung_runs = 0
        self.interruptions = Interruptions([], [], [])
        self._canary: subprocess.Popen[str] | None = None
        self._canary_due = 0.0
        self._ballast = site.home / "ballast"

    def run(self, faults: list[PlannedFault], seconds: float) -> None:
        """Make the faults at their times; keep the service, and the canary, running between."""
        began, waiting = time.monotonic(), list(faults)
        ends: list[tuple[float, Fault]] = []
        while (now := time.monotonic() - began) < seconds or ends:
            for due in [pair for pair in ends if pair[0] <= now]:
                due[1].end()
                ends.remove(due)
            while waiting and waiting[0].at_s <= now:
                planned = waiting.pop(0)
                fault = self._fault(planned.kind)
                if fault is None:
                    self.skipped.add(planned.kind)
                    continue
                print(f"{now:6.1f} s  {planned.kind}", flush=True)
                if planned.kind.split()[0] in STORES:
                    self.interruptions.store_faults.append(time.time())
                fault.begin()
                self.fault_counts[planned.kind] += 1
                ends.append((planned.at_s + planned.length_s, fault))
            self.site.service.keep_running()
            self.site.service.sample_memory()
            self._keep_canary_running()
            time.sleep(0.2)

    def finish_canary(self) -> None:
        """Let one run of the canary pass after all faults."""
        before = self.passed_runs
        if self._canary is not None:
            self._settle_canary(wait=True)
        for _ in range(3):
            if self.passed_runs > before:
                return
            self._canary = self.site.fallow("canary", "--yes")
            self._settle_canary(wait=True)

    def _keep_canary_running(self) -> None:
        if self._canary is not None:
            self._settle_canary(wait=False)
        elif time.monotonic() >= self._canary_due:
            self._canary = self.site.fallow("canary", "--yes")

    def _settle_canary(self, *, wait: bool) -> None:
        process = self._canary
        if process is None or (process.poll() is None and not wait):
            return
        try:
            out, err = process.communicate(timeout=CANARY_ENDS_S)
        except subprocess.TimeoutExpired:
            self.hung_runs += 1
            process.send_signal(signal.SIGABRT)  # it prints where it hangs
            out, err = process.communicate()
        self.passed_runs += process.returncode == 0
        if process.returncode not in {0, -signal.SIGKILL}:
            print(f"fallow canary: exit {process.returncode}: {out}{err}".strip(), flush=True)
        self._canary, self._canary_due = None, time.monotonic() + CANARY_EVERY_S

    def _fault(self, kind: str) -> Fault | None:
        """Return how to make a fault; None where this machine does not allow it."""
        site, service = self.site, self.site.service
        if kind in EXPORTER_FAULTS:
            exporter = self.chance.choice(site.exporters)
            return Fault(lambda: exporter.begin(EXPORTER_FAULTS[kind]), exporter.end)
        proxies = {
            "prometheus": site.prometheus_proxy,
            "s3": site.store_proxy,
            "api server": site.api_proxy,
            "postgresql": site.catalog_proxy,
        }
        for server, proxy in proxies.items():
            if kind == f"{server} away":
                return Fault(proxy.close_port, proxy.open_port)
            if kind == f"{server} hangs":
                return Fault(proxy.hang, proxy.resume)
        others = {
            "kill the service": Fault(self._kill),
            "stop the service": Fault(self._stop),
            "kill a canary": Fault(self._kill_canary),
            "postgresql loses an answer": Fault(lambda: site.catalog_proxy.lose_answer(b"COMMIT")),
            "postgresql stopped": Fault(site.postgres.stop, site.postgres.start),
            "clock ahead": Fault(lambda: service.step(STEP_S), lambda: service.step(0)),
            "clock behind": Fault(lambda: service.step(-STEP_S), lambda: service.step(0)),
        }
        if site.small_disk:
            others["disk full"] = Fault(self._fill_disk, self._free_disk)
        return others.get(kind)

    def _kill(self) -> None:
        self.interruptions.kills.append(time.time())
        self.site.service.kill()

    def _stop(self) -> None:
        self.interruptions.stops.append(time.time())
        self.site.service.stop()
        self.site.service.start()

    def _kill_canary(self) -> None:
        if self._canary is None:
            self._canary = self.site.fallow("canary", "--yes")
            time.sleep(self.chance.uniform(1.0, 4.0))
        self._canary.kill()

    def _fill_disk(self) -> None:
        with self._ballast.open("wb") as file:
            try:
                while True:
                    file.write(b"\0" * 1_000_000)
            except OSError:
                return

    def _free_disk(self) -> None:
        self._ballast.unlink(missing_ok=True)


def check_service(soak: Soak, seconds: float) -> list[Check]:
    """Hold the service to its grace and its memory."""
    stops, memory = soak.site.service.stops, soak.site.service.peak_mb
    end = memory[-1][0]
    quarters = [
        [
            mb
            for at, mb in memory
            if end - seconds * (4 - k) / 4 <= at <= end - seconds * (3 - k) / 4
        ]
        for k in range(4)
    ]
    third, last = (median(part) if part else 0.0 for part in quarters[2:])
    flat = seconds < PLATEAU_FROM_S or last <= third * GROWTH
    most = max(mb for _, mb in memory)
    return [
        Check(
            f"SIGTERM ends the service within {GRACE_S:.0f} s",
            max(stops) <= GRACE_S,
            f"{len(stops)} stops, the longest {max(stops):.1f} s",
        ),
        Check(
            f"memory stays under {MEMORY_MB:.0f} MB and has a plateau",
            most < MEMORY_MB and flat,
            f"at most {most:.0f} MB; medians of the last quarters {third:.0f} and {last:.0f} MB",
        ),
        Check(
            "it never ended by itself but with exit code 75",
            set(soak.site.service.exits) <= {75},
            f"{soak.site.service.exits}",
        ),
        Check(
            f"every fallow canary ends within {CANARY_ENDS_S:.0f} s",
            soak.hung_runs == 0,
            f"{soak.passed_runs} passed, {soak.hung_runs} did not end",
        ),
    ]


def deliver_queue(site: SoakSite) -> None:
    """Store the rows that wait on disk for the next start, as that one does first."""
    roles = {ServiceRole.collector}
    with (
        Warehouse.open(site.settings, write=True) as warehouse,
        open_queue(site.settings, warehouse, roles, observe=lambda _state: None) as queue,
    ):
        assert queue is not None  # the catalog is in PostgreSQL
        waited = queue.state.disk_rows
        queue.deliver()
        print(f"queue: {waited} rows waited on disk at the end, {queue.state.disk_rows} still do")


def check_recovery(site: SoakSite, began: float) -> Check:
    """Wait until every exporter's answers of after the last fault are stored."""
    recent = "SELECT DISTINCT device FROM sample WHERE ts >= $since"
    since = datetime.fromtimestamp(began, UTC)
    devices: set[str] = set()
    wanted = (EXPORTERS + 1) * GPUS
    while time.time() < began + RECOVERY_S:
        with Warehouse.open(site.settings) as warehouse:
            rows = warehouse.query(recent, {"since": since}).to_pylist()
        devices = {row["device"] for row in rows}
        if len(devices) == wanted:
            break
        time.sleep(1)
    return Check(
        "every source is collected again after the last fault",
        len(devices) == wanted,
        f"{len(devices)} of {wanted} GPUs after {time.time() - began:.0f} s",
    )


def check_commands(site: SoakSite, *, was_set: bool) -> list[Check]:
    """Run Fallow's own checks of the warehouse and of the journal.

    `was_set`: the clock was set. Rows of a clock that was ahead are in the future for an hour, and
    a counter that is read by a clock that was set back looks as if it had wrapped: the audits that
    name such hours are right to fail.
    """
    checks = []
    commands = (("warehouse", "verify"), ("actions", "--verify"))
    for words, process in [(words, site.fallow(*words)) for words in commands]:
        out, err = process.communicate(timeout=300)
        lines = [line for line in f"{out}\n{err}".splitlines() if line.strip()]
        failed = [line for line in lines if " failed " in line]
        expected = was_set and all(line.startswith(OF_CLOCKS) for line in failed) and bool(failed)
        figure = f"exit {process.returncode}" + "".join(f"\n        {line}" for line in failed)
        ok = process.returncode == 0 or expected
        checks.append(Check(f"fallow {' '.join(words)}", ok, figure))
    return checks


def run_soak(folder: Path, seed: int, seconds: float) -> list[Check]:
    """Run one soak in a folder; return what was checked."""
    faults, times = plan_faults(seed, seconds), Times()
    with ExitStack() as stack:
        site = SoakSite(folder, stack)
        earlier = site.store_earlier_rows()
        notes = folder / "notes.jsonl"
        notes.touch()
        reader = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.reader", site.config, notes, site.began.isoformat()],
            cwd=Path(__file__).parents[2],
            env=site.environ,
        )
        stack.callback(reader.kill)
        times.end("set-up")
        site.service.start()
        stack.callback(site.service.kill_for_good)
        soak = Soak(site, seed)
        soak.run(faults, seconds)
        times.end("faults")
        with ThreadPoolExecutor(1) as pool:
            canary = pool.submit(soak.finish_canary)
            checks = [check_recovery(site, time.time())]
            times.end("recovery")
            canary.result()
        times.end("last run of the canary")
        reader.kill()
        reader.wait()
        soak.interruptions.stops.append(time.time())
        site.service.stop()
        times.end("SIGTERM")
        notes_read = read_notes(notes)
        print(f"faults: {dict(soak.fault_counts)}")
        print(f"errors of the reader: {dict(notes_read.errors)}")
        for kind in sorted(soak.skipped):
            print(f"NOT MADE, this machine does not allow it: {kind}")
        for kind in sorted(set(KINDS) - set(soak.fault_counts) - soak.skipped):
            print(f"not reached in {seconds:.0f} s: {kind}")
        deliver_queue(site)
        checks += check_rows(site, notes_read, earlier, soak.interruptions)
        checks += check_actions(site, soak.passed_runs)
        checks += check_service(soak, seconds)
        was_set = any(kind.startswith("clock") for kind in soak.fault_counts)
        checks += check_commands(site, was_set=was_set)
        times.end("counting and verifying")
    print(f"seconds: {times}")
    return checks


def main() -> int:
    """Run it and print a line per check."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep what was written here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fallow-soak-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            checks = run_soak(folder, arguments.seed, 60 * arguments.minutes)
        except pytest.skip.Exception as error:
            print(f"SKIPPED, nothing was checked: {error}")
            return SKIPPED
    print(f"soak of {arguments.minutes:g} minutes, seed {arguments.seed}")
    for check in checks:
        print(f"{'ok  ' if check.ok else 'FAIL'}  {check.what}: {check.figure}")
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
