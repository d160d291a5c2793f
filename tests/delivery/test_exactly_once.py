"""Each report reaches each destination once, wherever a process is killed; or somebody is told."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.notices.apprise_delivery import DeliveryAttempt
from fallow.errors import SourceError
from fallow.settings import Settings
from runtime.operations.answers.reports import Report
from runtime.service.delivery import destinations
from runtime.service.delivery.outbox import Delivery, Outbox, get_outbox_path
from runtime.service.delivery.sender import Deliveries
from tests.delivery.receivers import NOW, Clock, Hook, Post, configured, produce, report

STORE = {"url": "s3://books", "s3": {"endpoint": "http://127.0.0.1:1"}}
ROOT = Path(__file__).resolve().parents[2]


class Killed(BaseException):
    """The process ends here: nothing catches it, and nothing after it runs."""


class World:
    """Destinations that remember what they got; a bucket knows what it has already."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.got: Counter[tuple[str, datetime]] = Counter()
        self.answers: dict[str, list[DeliveryAttempt]] = {}
        self.lies: dict[str, str] = {}
        self.step: Callable[[], None] = lambda: None

    def hand(self, settings: Settings, one: Delivery, made: Report, lies: str) -> DeliveryAttempt:
        self.step()
        assert made == report()
        self.lies[one.destination] = lies
        answer = (
            self.answers.get(one.destination) or [DeliveryAttempt(True, f"at {one.destination}")]
        )[0]
        if self.answers.get(one.destination):
            self.answers[one.destination].pop(0)
        if answer.is_accepted:
            key = (one.destination, one.due)
            if not (destinations.is_repeatable(settings, one.destination) and self.got[key]):
                self.got[key] += 1
        self.step()
        return answer


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    channels = {"mail": "json://127.0.0.1:1", "chat": "json://127.0.0.1:2"}
    return configured(tmp_path, channels, stores={"archive": STORE})


@pytest.fixture
def book(settings: Settings) -> Iterator[Outbox]:
    with Outbox.open(get_outbox_path(settings)) as opened:
        yield opened


def deliveries(
    settings: Settings, book: Outbox, clock: Clock, world: World, **more: Any
) -> Deliveries:
    made: dict[str, Any] = {"produce": produce, "hand": world.hand, **more}
    return Deliveries(settings, None, book, clock=clock, **made)  # type: ignore[arg-type]


def owed(book: Outbox, settings: Settings, due: datetime = NOW) -> None:
    (schedule,) = settings.reports.schedules
    book.owe(schedule.name, due, schedule.to, due)


def states(book: Outbox, due: datetime = NOW) -> dict[str, str]:
    return {one.destination: one.state for one in book.of("weekly", due)}


def test_a_report_goes_to_each_destination_and_never_again(
    settings: Settings, book: Outbox, clock: Clock
) -> None:
    world, result = World(settings), list[str]()
    owed(book, settings)
    for _ in range(3):
        deliveries(settings, book, clock, world, on_result=result.append).turn()
        owed(book, settings)
        clock.on(timedelta(hours=2))
    assert states(book) == {"mail": "sent", "chat": "sent", "archive": "sent"}
    assert set(world.got.values()) == {1}
    assert result == ["sent"] * 3
    assert world.lies == {"archive": "", "mail": "at archive", "chat": "at archive"}
    assert book.report("weekly", NOW) is None  # nobody waits for it any more


def test_wherever_a_process_is_killed_nobody_gets_two_and_no_gap_goes_unsaid(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = {"mail": "json://127.0.0.1:1", "chat": "json://127.0.0.1:2"}
    killed_at, unknown = 0, 0
    while True:
        settings = configured(tmp_path / str(killed_at), channels, stores={"archive": STORE})
        world, steps = World(settings), [0]

        def step(last: int = killed_at, steps: list[int] = steps) -> None:
            steps[0] += 1
            if steps[0] == last + 1:
                raise Killed

        world.step = step
        write = Outbox._write
        with monkeypatch.context() as patch, Outbox.open(get_outbox_path(settings)) as book:
            owed(book, settings)

            def wrote(self: Outbox, *asked: Any, write: Any = write, step: Any = step) -> int:
                step()  # before it is on disk
                rows: int = write(self, *asked)
                step()  # after
                return rows

            patch.setattr(Outbox, "_write", wrote)
            try:
                deliveries(settings, book, clock, world).turn()
                done = True
            except Killed:
                done = False
        world.step = lambda: None
        with Outbox.open(get_outbox_path(settings)) as book:  # the next process
            for _ in range(3):
                deliveries(settings, book, clock, world).turn()
                clock.on(timedelta(minutes=5))
            found = states(book)
        for name, state in found.items():
            got = sum(n for (to, _), n in world.got.items() if to == name)
            assert got <= 1, (killed_at, name)
            assert state in ({"sent"} if name == "archive" else {"sent", "unknown"}), killed_at
            assert got == 1 or state == "unknown", (killed_at, name)
            unknown += state == "unknown"
        if done:
            break
        killed_at += 1
    assert killed_at > 20
    assert unknown > 0


def test_what_is_unknown_is_told_and_sent_again_only_when_asked(
    settings: Settings, book: Outbox, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    world, result = World(settings), list[str]()
    owed(book, settings)
    for one in book.of("weekly", NOW):
        book.settle(one, "sending", NOW)
    deliveries(settings, book, clock, world, on_result=result.append).turn()
    assert states(book) == {"mail": "unknown", "chat": "unknown", "archive": "sent"}
    assert result == ["unknown", "unknown", "sent"]
    assert "report unknown" in caplog.text
    assert book.again("weekly", NOW, clock()) == 2
    deliveries(settings, book, clock, world).turn()
    assert set(states(book).values()) == {"sent"}


def test_one_that_is_away_is_tried_again_with_growing_pauses_and_others_are_served(
    settings: Settings, book: Outbox, clock: Clock
) -> None:
    world, result = World(settings), list[str]()
    away = DeliveryAttempt(False, "mx.example:25 takes no mail: 450 not now", again=True)
    world.answers["mail"] = [away] * 3
    owed(book, settings)
    tries: list[tuple[int, int]] = []
    for _ in range(60):
        deliveries(settings, book, clock, world, on_result=result.append).turn()
        (mail,) = (d for d in book.of("weekly", NOW) if d.destination == "mail")
        if not tries or tries[-1][0] != mail.tries:
            tries.append((mail.tries, int((clock() - NOW).total_seconds() // 60)))
        clock.on(timedelta(minutes=1))
    assert tries == [(1, 0), (2, 1), (3, 3), (4, 7)]
    assert states(book) == {"mail": "sent", "chat": "sent", "archive": "sent"}
    assert set(world.got.values()) == {1}
    assert Counter(result) == {"put off": 3, "sent": 3}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (DeliveryAttempt(False, "535 wrong password"), "failed"),
        (DeliveryAttempt(False, "fell silent", sure=False), "unknown"),
        (DeliveryAttempt(False, "away", again=True), "failed"),
    ],
)
def test_what_will_not_arrive_is_said_once_and_for_all(
    settings: Settings, book: Outbox, clock: Clock, answer: DeliveryAttempt, state: str
) -> None:
    short = settings.reports.model_copy(update={"give_up": timedelta(hours=8)})
    settings = settings.model_copy(update={"reports": short})
    world = World(settings)
    world.answers["mail"] = [answer] * 99
    owed(book, settings)
    for _ in range(40):
        deliveries(settings, book, clock, world).turn()
        clock.on(timedelta(minutes=20))
    assert states(book) == {"mail": state, "chat": "sent", "archive": "sent"}
    (mail,) = (d for d in book.of("weekly", NOW) if d.destination == "mail")
    assert mail.message == ("given up after 12 tries: " if answer.again else "") + answer.message


def test_a_report_that_cannot_be_made_is_made_when_it_can(
    settings: Settings, book: Outbox, clock: Clock
) -> None:
    world, calls = World(settings), list[Any]()

    def failing(views: Any, config: Settings, **asked: Any) -> Report:
        calls.append(asked)
        if len(calls) == 1:
            raise SourceError("no data yet")
        return produce(views, config, **asked)

    owed(book, settings)
    deliveries(settings, book, clock, world, produce=failing).turn()
    assert {d.message for d in book.unsettled("waiting")} == {"it cannot be made: no data yet"}
    clock.on(timedelta(minutes=1))
    deliveries(settings, book, clock, world, produce=failing).turn()
    assert set(states(book).values()) == {"sent"}
    assert calls[0]["window"].end == NOW  # of the moment it was due, not of the one it was made
    assert calls[0] == calls[1]


def test_all_get_the_file_that_the_first_one_got(
    settings: Settings, book: Outbox, clock: Clock
) -> None:
    world, made = World(settings), list[int]()
    world.answers["chat"] = [DeliveryAttempt(False, "away", again=True)]

    def once(*asked: Any, **how: Any) -> Report:
        made.append(1)
        return produce(*asked, **how)

    owed(book, settings)
    for _ in range(2):
        deliveries(settings, book, clock, world, produce=once).turn()
        clock.on(timedelta(minutes=2))
    assert set(states(book).values()) == {"sent"}
    assert made == [1]


def test_a_newer_one_or_a_change_of_the_settings_ends_the_wait(
    settings: Settings, book: Outbox, clock: Clock
) -> None:
    world = World(settings)
    world.answers["mail"] = [DeliveryAttempt(False, "away", again=True)]
    owed(book, settings)
    book.owe("abolished", NOW, ["mail"], NOW)
    deliveries(settings, book, clock, world).turn()
    clock.on(timedelta(days=1))
    owed(book, settings, clock())
    deliveries(settings, book, clock, world).turn()
    (old,) = (d for d in book.of("weekly", NOW) if d.destination == "mail")
    assert (old.state, old.message) == ("failed", "a newer one is due; away")
    assert set(states(book, clock()).values()) == {"sent"}
    assert book.of("abolished", NOW)[0].state == "failed"


def test_a_stop_ends_between_two_destinations_and_the_next_process_goes_on(
    settings: Settings, book: Outbox, clock: Clock
) -> None:
    world, stop = World(settings), threading.Event()
    world.step = stop.set
    owed(book, settings)
    deliveries(settings, book, clock, world, stop=stop).turn()
    assert sorted(states(book).values()) == ["sent", "waiting", "waiting"]
    clock.on(timedelta(minutes=1))
    deliveries(settings, book, clock, world).turn()
    assert set(states(book).values()) == {"sent"}
    assert set(world.got.values()) == {1}


def test_two_processes_do_not_send_at_the_same_time(
    settings: Settings, book: Outbox, clock: Clock
) -> None:
    world = World(settings)
    owed(book, settings)
    with Outbox.open(get_outbox_path(settings)) as other, other.alone() as alone:
        assert alone
        assert not deliveries(settings, book, clock, world).turn()
    assert not world.got
    assert deliveries(settings, book, clock, world).turn()


CHILD = """
import sys
from datetime import datetime
from pathlib import Path
from fallow.settings import load
from runtime.service.delivery.outbox import Outbox, get_outbox_path
from runtime.service.delivery.sender import Deliveries
from tests.delivery.receivers import produce

settings = load(file=Path(sys.argv[1])).settings
clock = lambda: datetime.fromisoformat(sys.argv[2])
with Outbox.open(get_outbox_path(settings)) as outbox:
    for schedule in settings.reports.schedules:
        outbox.owe(schedule.name, clock(), schedule.to, clock())
    Deliveries(settings, None, outbox, clock=clock, produce=produce).turn()
"""


def test_a_process_killed_while_it_sends_is_followed_by_one_that_does_not_send_again(
    tmp_path: Path, post: Post, hook: Hook
) -> None:
    mail = f"mailto://127.0.0.1:{post.port}/?from=f@corp.example&to=cfo@corp.example&mode=insecure"
    (tmp_path / "fallow.yaml").write_text(
        f"home: {tmp_path / 'home'}\n"
        "notices:\n  channels:\n"
        f"    mail: {{url: '{mail}'}}\n    hook: {{url: '{hook.url}'}}\n"
        "reports:\n  schedules:\n"
        "  - {name: weekly, audience: finance, format: md, cron: '0 7 * * *', to: [mail, hook]}\n"
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")}

    def process() -> subprocess.Popen[str]:
        words = [sys.executable, "-c", CHILD, str(tmp_path / "fallow.yaml"), NOW.isoformat()]
        return subprocess.Popen(words, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)

    with process() as first:
        hook.seen = lambda: os.kill(first.pid, signal.SIGKILL)
        assert first.wait(120) == -signal.SIGKILL
    hook.seen = lambda: None
    with process() as second:
        assert second.wait(120) == 0
        assert second.stderr is not None
        answer = second.stderr.read()
    assert len(post.is_accepted) == 1
    assert len(hook.got) == 1
    assert "report unknown" in answer
    with Outbox.open(tmp_path / "home" / "deliveries.sqlite", write=False) as book:
        assert states(book) == {"mail": "sent", "hook": "unknown"}
