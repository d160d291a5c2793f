"""Files and windows that would hang a command, fill its memory or break it: one line, in time."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.prices.rate_card import RateCard
from fallow.errors import UsageError
from fallow.settings.prices import PriceSettings
from tests.cli.conftest import Fallow, Ran
from tests.cli.test_bad_input import SAMPLES

BOMB = "a: &a {k: 1, l: 2}\n" + "".join(
    f"{new}: &{new} {{" + ", ".join(f"k{i}: *{old}" for i in range(10)) + "}\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
FILES: dict[str, str | bytes] = {
    "bomb.yaml": BOMB,
    "self.yaml": "idle: &a {x: *a}\n",
    "bomb-of-merges.yaml": BOMB.replace("k0: *", "<<: *"),
    "tag.yaml": "home: !hunter2-of-a-tag x\n",
    "deep.yaml": "idle: " + "[" * 50_000,
    "digits.yaml": "cluster: " + "9" * 5000,
    "day.yaml": "cluster: 2026-99-99\n",
    "latin.yaml": b"home: /x\ncluster: caf\xe9\n",
    "nul.yaml": b"cluster: a\0b\n",
}
FIFO, DEVICE = "a FIFO is no plain file", "a device is no plain file"
NO_FILE = {"fifo": FIFO, "/dev/zero": DEVICE, "folder": "is a directory", "gone": "no such file"}


@pytest.fixture
def within(fallow: Fallow, tmp_path: Path) -> Iterator[Fallow]:
    """Run a command beside odd files; a test that waits for 10 s fails."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name, content in FILES.items():
        body = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(body)
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(100 << 30)

    def fail(*_: object) -> None:
        raise TimeoutError("10 s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(10)
    yield fallow
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def check(ran: Ran, *words: str) -> None:
    lines = ran.err.splitlines()
    assert (ran.code, ran.out) == (2, ""), ran
    assert lines[0].startswith("fallow: "), ran.err
    assert all(line.startswith("hint: ") for line in lines[1:]), ran.err
    assert len(lines) <= 2, ran.err
    assert "defect" not in ran.err
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize(
    ("file", "said"),
    [
        *NO_FILE.items(),
        ("endless", "legal: 1,048,576 at most"),
        ("bomb.yaml", "over 100,000 values, each alias expanded in line 6"),
        ("bomb-of-merges.yaml", "over 100,000 values, each alias expanded in line"),
        ("self.yaml", "an anchor has an alias of itself in line 1"),
        ("tag.yaml", "tags are not read in line 1"),
        ("deep.yaml", "nested deeper than 16 levels in line 1"),
        ("digits.yaml", "not YAML"),
        ("day.yaml", "not YAML"),
        ("latin.yaml", "line 2 is not UTF-8"),
        ("nul.yaml", "not YAML"),
    ],
)
def test_what_is_no_file_of_settings(within: Fallow, file: str, said: str) -> None:
    ran = within("config", "show", "--config", file)
    check(ran, said)
    assert "hunter2" not in ran.err, "a name after a sign may be a password that begins with it"


@pytest.mark.parametrize(("name", "said"), [("fifo", FIFO), ("endless", "legal: 1,048,576")])
def test_other_files_that_settings_name(
    within: Fallow, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", name)
    check(within("keep", "Job/a/b"), f"the kubeconfig {name}", said)
    with pytest.raises(UsageError, match=f"the rate card {name}: "):
        RateCard(PriceSettings(rate_card=name))


def test_aliases_of_a_few_values_are_read(within: Fallow, tmp_path: Path) -> None:
    """Programs that write YAML repeat equal parts by aliases: so does `fallow demo`."""
    text = "demand: &d {lead: 1h}\nidle: {<<: {threshold: 0.02}}\nspot: {}\ncluster: &c east\n"
    (tmp_path / "good.yaml").write_text(text)
    ran = within("config", "show", "--config", "good.yaml", "-o", "csv")
    assert ran.code == 0, ran.err
    assert "idle.threshold,0.02,good.yaml" in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((["policy", "check", name], NO_FILE[name]) for name in ("fifo", "/dev/zero", "gone")),
        (["policy", "check", "endless"], "legal: 262,144 at most"),
        (["policy", "check", "bomb.yaml"], "bomb.yaml:1: &a: anchors and aliases are not read"),
        *((["import", "kubectl", name], said) for name, said in NO_FILE.items()),
        (["import", "kubectl", "endless"], "legal: 4,294,967,296 at most"),
        *((["import", "exposition", name], said) for name, said in NO_FILE.items()),
        (["import", "exposition", "endless"], "at most"),
        *((["import", "samples", name, *SAMPLES], said) for name, said in NO_FILE.items()),
        (["import", "samples", "endless", *SAMPLES], "at most"),
        *(
            (["import", "openb", "--nodes", name, "--pods", name], said)
            for name, said in NO_FILE.items()
        ),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_what_is_no_file_to_read(within: Fallow, words: list[str], said: str) -> None:
    check(within(*words), said)


@pytest.mark.parametrize("kind", ["kubectl", "exposition"])
def test_a_file_without_lines_is_not_read_to_its_end(
    within: Fallow, tmp_path: Path, kind: str
) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(3 << 30)
    check(within("import", kind, "zeros"), "zeros is no", " MiB")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["spend", "--window", "9999999d"], "too long: a hundred years, 36525d"),
        (["analyze", "--window", "9" * 400 + "d"], "too long"),
        (["spend", "--window", "0001-01-01T00:00+14:00/now"], "legal: the years 1970 to 2199"),
        (["spend", "--window", "2026-11-01/9999-12-31"], "legal: the years 1970 to 2199"),
        (["spend", "--window", "7d", "--until", "9999-12-31T23:59-14:00"], "legal: the years"),
        (["saved", "--since", "9999999d"], "too long"),
        (["saved", "--since", "0001-01-01"], "legal: the years"),
        (["incidents", "--split", "9999-12-31"], "legal: the years"),
        (["keep", "Job/a/b", "9999999d"], "too long"),
        (["report", "finance", "--window", "9999999d"], "too long"),
        (["analyze", "idle", "--min-duration", "9999999d"], "too long"),
        (["what-if", "--quota", "vision=1", "--window", "9999999d"], "too long"),
    ],
)  # fmt: skip
def test_a_window_that_no_calendar_holds(
    fallow: Fallow, demo_home: Path, words: list[str], said: str
) -> None:
    check(fallow(*words, "--home", demo_home), said)


def test_a_hundred_years_are_a_window(fallow: Fallow, demo_home: Path) -> None:
    whole = fallow("spend", "--window", "36525d", "--home", demo_home, "-o", "json")
    assert whole.code == 0, whole.err
