"""Documentation is held to the code: links lead somewhere, files exist, commands parse and run."""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from fallow.models import STATES
from fallow.resources import read_table
from fallow.settings import Settings
from fallow.window import parse_duration
from runtime.cli import run
from runtime.cli.app import build_whole
from runtime.experiments import demo
from runtime.experiments.demo_actions import write_policies
from runtime.operations.acting import plans
from tests.capacity.replay.test_what_if_truth import SITES, WITHIN
from tests.demo_homes import copy_demo
from warehouse.lake import Warehouse

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "dashboards/README.md"])
FENCE = re.compile(r"^(`{3,})(\S*)[^\n]*\n(.*?)^\1\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
SHELL = {"", "sh", "bash", "console"}
FOLDERS = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] not in ".~"}


class Line(NamedTuple):
    """A command line of a page."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """Its words after `fallow`, without the comment; up to the first pipe."""
        words = shlex.split(self.text, comments=True)
        ends = [n for n, word in enumerate(words) if word in {"|", "&&", ";", ">", "2>"}]
        return [word.rstrip(";") for word in words[1 : min(ends, default=len(words))]]


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = sum(one == slug or one.rpartition("-")[0] == slug for one in found)
        found.append(f"{slug}-{again}" if slug in found else slug)
    return frozenset(found)


def check_pages(list_wrong: Callable[[Path], Iterable[str]]) -> None:
    """Fail with all that is wrong on any page, each after the page's name."""
    wrong = [f"{page.relative_to(ROOT)}: {said}" for page in PAGES for said in list_wrong(page)]
    assert not wrong


def test_every_link_of_a_page_leads_somewhere() -> None:
    def list_broken(page: Path) -> Iterator[str]:
        for target in LINK.findall(prose(page)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if not there.exists():
                yield f"{target}: no such file"
            elif anchor and anchor not in anchors(there):
                yield f"{target}: no such heading"

    check_pages(list_broken)


def test_every_file_that_a_page_names_is_there() -> None:
    def list_missing(page: Path) -> Iterator[str]:
        for code in CODE.findall(prose(page)):
            name = code.removeprefix("./").partition("::")[0].rstrip("/")
            if not re.fullmatch(r"[\w.\-]+(/[\w.\-]+)+", name) or name.split("/")[0] not in FOLDERS:
                continue
            if name.startswith("fallow/") and "." not in name:
                continue  # a namespace and a name in a cluster
            if not (ROOT / name).exists():
                yield name

    check_pages(list_missing)


def test_every_module_and_target_that_a_page_runs_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    def list_missing(page: Path) -> Iterator[str]:
        text = page.read_text(encoding="utf-8")
        for module, name in re.findall(r"python -m ([\w.]+)(?: ([a-z_]+))?", text):
            path = ROOT / module.replace(".", "/")
            if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists()):
                yield module
            if module == "benchmarks" and name and not (path / f"{name}.py").exists():
                yield f"python -m benchmarks {name}"
        for target in re.findall(r"[`$] ?make ([a-z-]+)", text):
            if not re.search(rf"^{target}:", makefile, re.MULTILINE):
                yield f"make {target}"

    check_pages(list_missing)


@cache
def command_line() -> Any:
    """Return the whole command line."""
    return build_whole()


def lines() -> Iterator[Line]:
    """Yield every `fallow` command of every block of code."""
    for page in PAGES:
        for _, language, body in FENCE.findall(page.read_text(encoding="utf-8")):
            if language not in SHELL or page.name == "cli.md":
                continue
            joined = re.sub(r"\\\n\s*", " ", body)
            joined = re.sub(r'(?m)^([^"\n]*"[^"\n]*)\n\s*([^"\n]*"[^"\n]*)$', r"\1 \2", joined)
            for line in joined.splitlines():
                text = line.strip().removeprefix("$ ")
                if re.match(r"(kubectl )?fallow [a-z]", text):
                    yield Line(str(page.relative_to(ROOT)), text.removeprefix("kubectl "))


def parsed(words: list[str]) -> str | None:
    """Return what the parser has against a command line; nothing is run."""
    group, left = command_line(), list(words)
    path: list[str] = []
    while hasattr(group, "commands"):
        while left and left[0].startswith("-"):
            left = left[2:]
        name = left.pop(0) if left else ""
        if name not in group.commands:
            return f"no command {' '.join([*path, name])}"
        group = group.commands[name]
        path.append(name)
    try:
        group.make_context(" ".join(path), left)
    except typer.TyperException as error:
        return error.format_message()
    return None


EXAMPLES = sorted(set(lines()))


def test_every_command_of_a_block_has_a_command_and_options_that_exist() -> None:
    wrong = [f"{e.page}: {e.text}: {said}" for e in EXAMPLES if (said := parsed(e.words))]
    assert EXAMPLES
    assert not wrong


def test_every_command_in_a_sentence_has_options_that_exist() -> None:
    def list_wrong(page: Path) -> Iterator[str]:
        for code in CODE.findall(prose(page)):
            words = code.split()
            if len(words) < 2 or words[0] != "fallow" or not words[1].isidentifier():
                continue
            group, names = command_line(), words[1:]
            while hasattr(group, "commands") and names and names[0] in group.commands:
                group, names = group.commands[names[0]], names[1:]
            if group is command_line():
                yield f"{code}: no such command"
                continue
            if hasattr(group, "commands") and names and names[0].islower():
                yield f"{code}: no such command"
            options = {name for p in getattr(group, "params", ()) for name in (*p.opts, "--help")}
            named = {w.partition("=")[0] for w in names if re.match(r"--?[a-z]", w)}
            yield from (f"{code}: no option {name}" for name in sorted(named - options))

    check_pages(list_wrong)


def test_a_wrong_command_line_is_seen() -> None:
    assert parsed(["spend", "--by", "team"]) is None
    assert "--nope" in (parsed(["spend", "--nope"]) or "")
    assert parsed(["spent"]) == "no command spent"
    assert parsed(["warehouse", "stats"]) == "no command warehouse stats"
    assert parsed(["explain"]) is not None


ELSEWHERE = {
    "demo": "tests/runtime/test_demo_whole.py::test_readme_quotes_the_demo",
    "scan": "tests/acceptance/test_real_input.py"
    "::test_scan_of_a_real_prometheus_tells_idle_from_unknown_from_free",
    "doctor": "tests/prometheus/test_doctor.py"
    "::test_a_real_server_without_gpus_is_told_apart_from_one_that_fails",
    "up": "tests/runtime/test_service.py::test_up_collects_and_stops_gracefully",
    "apply": "tests/cli/test_acting_whole.py::test_a_notebook_is_told_stopped_explained_and_undone",
    "undo": "tests/cli/test_acting.py::test_an_action_is_listed_undone_once_and_no_more",
    "freeze": "tests/cli/test_acting.py::test_freeze_and_thaw_with_and_without_a_cluster",
}
"""README's commands that need a server, a cluster or minutes, each with the test that runs it."""
ANSWERS = {0, 3, 4}
"""Done, refused by a policy, findings exist: the documented ends of a command that worked."""
FILES = {
    "samples": "pod,time,util\na,2026-11-20T12:00:00Z,3\na,2026-11-20T12:01:00Z,0\n",
    "exposition": 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="NVIDIA H100"} 3\n',
    "kubectl": '{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "n"}}]}',
}
"""What each import of README reads, as small as it can be."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a small demo's warehouse."""
    folder = tmp_path_factory.mktemp("examples")
    home = copy_demo(tmp_path_factory, folder / "home", days=1, gpus=24, seed=3)
    write_policies(home / "policies")  # a demo that does not act writes none
    return home


@pytest.fixture(scope="module")
def case(home: Path) -> dict[str, str]:
    """Return one finding of that warehouse, which the examples' placeholders stand for."""
    with Warehouse.open(Settings(home=home, cluster="demo")) as warehouse:
        sql = "SELECT * FROM finding WHERE analyzer = 'idle' ORDER BY usd DESC, id LIMIT 1"
        (row,) = warehouse.query(sql).to_pylist()
    workload = f"{row['workload_kind']}/{row['namespace']}/{row['workload']}"
    return {"id": row["id"], "workload": workload}


def readme_lines() -> list[Line]:
    """Return README's commands, of its blocks and of its sentences and tables."""
    spans = [span.rpartition("; ")[2] for span in CODE.findall(prose(ROOT / "README.md"))]
    written = {Line("README.md", span) for span in spans if span.startswith("fallow ")}
    return sorted(written | {line for line in EXAMPLES if line.page == "README.md"})


RUN_HERE = [line for line in readme_lines() if line.words[0] not in ELSEWHERE]


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in which commands run, on the demo's warehouse."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home.parent / "data"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN_HERE, ids=lambda line: line.text[:60])
def test_the_readme_s_examples_run(
    line: Line,
    folder: Path,
    case: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = line.words
    stands_for = {"ID": case["id"], "Notebook/team-a/nb-1": case["workload"]}
    if words[0] == "import":
        monkeypatch.setenv("FALLOW_HOME", str(folder / "home"))
        stands_for["FILE"] = stands_for["dump.json"] = str(folder / "samples.csv")
        (folder / "samples.csv").write_text(FILES[words[1]])
    if words[:2] == ["policy", "init"]:
        monkeypatch.setenv("FALLOW_HOME", str(folder / "home"))
    else:
        write_policies(folder / "policies")
    code = run([stands_for.get(word, word) for word in words])
    printed = capsys.readouterr()
    assert code in ANSWERS, printed.err
    # Of data that ended long ago a plan is empty, and that is a line on stderr.
    assert printed.out or printed.err.startswith("nothing\n")


def test_every_command_of_readme_is_run_here_or_by_the_test_that_is_named() -> None:
    assert {line.words[0] for line in readme_lines()} >= {*ELSEWHERE, "spend", "plan", "backtest"}
    for command, test in ELSEWHERE.items():
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text, test
        assert f'"{command}"' in text, f"{path} does not run fallow {command}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo: setup.*\n\t@\$\(BIN\)/fallow demo$", makefile, re.MULTILINE)


NUMBERS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
)


def test_the_figures_of_readme_are_those_of_the_code() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = project["requires-python"].removeprefix(">=")
    policies = [*(ROOT / "policies").glob("*.yaml")]
    assert f"in one of {NUMBERS[len(STATES)]} states" in text
    assert f"# {NUMBERS[len(policies)]} policies; none can act until" in text
    assert f"Python {python} or newer" in text
    # tests/runtime/test_demo_whole.py holds the block of the demo. A new figure needs a test.
    words = re.sub(
        r"\([^)]*\)|^\d\. ", "", CODE.sub("", prose(ROOT / "README.md")), flags=re.MULTILINE
    )
    cases = read_table("tests.failure_cases", "cases.csv")
    twins = sum(bool(case["twin_of"]) for case in cases)
    assert f"all {len(cases) - twins} simulated failures and their {twins} near-twins" in text
    # tests/analyzers/reliability/test_incidents.py holds the table of this page.
    hang = re.search(
        r"\| silent hang \| (\d+)\.0 \| never \|", (ROOT / "docs" / "incidents.md").read_text()
    )
    assert hang
    assert f"a silent hang in {hang[1]} minutes" in text
    # tests/capacity/replay/test_what_if_truth.py holds them.
    sites, within = str(SITES), f"{WITHIN:.0%}".rstrip("%")
    sentence = (
        f"all {sites} simulated sites it predicts the change of a mean wait within {within} %"
    )
    assert sentence in " ".join(text.split())
    figures = {python, "10,000", "2.0", str(len(cases) - twins), str(twins), hang[1]}
    figures |= {sites, within}
    assert set(re.findall(r"\d[\d,.]*\d|\d", words)) == figures


def test_readme_begins_with_a_sentence_a_picture_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    title, sentence, picture, commands, *_ = text.split("\n\n")
    assert title == "# Fallow"
    assert sentence.count(". ") == 0
    assert sentence.endswith(".")
    assert picture.startswith("![")
    assert re.findall(r"^make (\w+)", commands, re.MULTILINE) == ["demo", "test"]


# What lies between them: the shortest and the longest time are in every run.
BETWEEN = [pytest.param(late, marks=pytest.mark.long) for late in ("6d23h50m", "7d6m")]


@pytest.mark.slow
@pytest.mark.parametrize("late", ["5m", "60d", *BETWEEN])
def test_why_not_answers_by_every_gate_however_long_ago_the_data_end(
    home: Path, case: dict[str, str], late: str
) -> None:
    settings = Settings(home=home, cluster="demo")
    rules = plans.load_policies(settings, [ROOT / "policies"])
    at = demo.END + parse_duration(late)
    with Warehouse.open(settings) as warehouse:
        made = plans.explain_why_not(
            warehouse, settings, rules, case["workload"], at=at, cluster=None
        )
    assert {(found.analyzer, policy) for found, policy, _ in made.cases} == {
        ("idle", rule.name) for rule in rules
    }
    assert all(answers for _, _, answers in made.cases)


def test_the_page_install_names_every_extra_and_every_switch_of_the_chart() -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"^Linux .*?Extras: (.*?)\.$", text, re.DOTALL | re.MULTILINE)
    assert set(project["optional-dependencies"]) == {
        name for name in CODE.findall(extras) if name in project["optional-dependencies"]
    }
    values = yaml.safe_load(
        (ROOT / "deploy" / "helm" / "fallow" / "values.yaml").read_text(encoding="utf-8")
    )
    table = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    switches = {name for name, value in values.items() if isinstance(value, dict)}
    switches = {name for name in switches if "enabled" in values[name]} | {"split", "shards"}
    assert {name for name in switches if f"`{name}" not in table} == set()
