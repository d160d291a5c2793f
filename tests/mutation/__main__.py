"""Measure what tests notice: `make mutate`, or python -m tests.mutation --number 10.

Mutants are drawn by a fixed seed from all mutable statements of the sources in `subjects.csv`; each
is tried against its subject's tests, in a copy of the checkout, until the time is over. The order
is the same wherever it runs: a slower machine tries the first so many. The tests run once without a
mutant, to measure which of them reach which lines; those run first, and most mutants need no other.
Printed are the score and the survivors. `equivalent.csv` has mutants that no test can kill, each
with its reason.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.mutation.mutants import Mutant, find_statement, mutants
from tests.mutation.reach import Reach
from tests.mutation.subjects import Subject, equivalents, sources, subjects

ROOT = Path(__file__).resolve().parents[2]
MARKS = "not long and not browser and not real_data"
SLOWER, STARTUP_S = 5, 20.0
"""A mutant that takes this many times as long as the unchanged code, which needs so many seconds to
import and collect, is stuck: killed."""


class Trial(NamedTuple):
    """A mutant, the subject that it is of, and what became of it."""

    subject: str
    mutant: Mutant
    result: str  # killed, survived, or untried where the time was over


def draw(seed: int) -> Iterator[tuple[Subject, Mutant]]:
    """Yield one mutant of each mutable statement, in an order that depends on the seed.

    A statement's mutant and place follow from the seed and its own text: a change of another
    statement, or one more equivalent mutant, moves nothing else.
    """
    ranked: list[tuple[float, str, Subject, Mutant]] = []
    excluded = equivalents()
    for subject in subjects():
        for path in sources(ROOT, subject):
            text = (ROOT / path).read_text(encoding="utf-8")
            lines = text.splitlines()
            repeated: Counter[str] = Counter()
            for statement in mutants(path, text):
                key = repr([(lines[m.line - 1].strip(), m.old, m.new) for m in statement])
                repeated[key] += 1
                choice = random.Random(f"{seed} {path} {repeated[key]} {key}")
                mutant = choice.choice(statement)
                line = lines[mutant.line - 1].strip()
                if (path, line, mutant.old, mutant.new) not in excluded:
                    ranked.append((choice.random(), path, subject, mutant))
    yield from ((subject, mutant) for *_, subject, mutant in sorted(ranked))


class Checkout:
    """A copy of the checkout that mutants are tried in; the checkout itself is never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder.with_name(f"{folder.name}.output")
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)

    def pass_tests(self, limit: float, *arguments: str) -> bool | None:
        """Return whether tests pass here; None = not within a time in seconds."""
        command = [
            sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
            "-p", "no:randomly", "-p", "tests.mutation.reach", "-m", MARKS, *arguments,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Jobs share the cores as the processes of xdist do: one thread for each engine.
            "PYTEST_XDIST_WORKER": "gw0",
        }
        # The processes that a mutant leaves behind die with it.
        with (
            self.output.open("wb") as output,
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            ) as process,
        ):
            try:
                return process.wait(timeout=max(limit, 1)) == 0
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)

    def measure_reach(self, subject: Subject) -> Reach:
        """Return what a subject's tests reach in unchanged code; exit where they fail."""
        listed, written = (self.folder.with_name(f"{self.folder.name}.{n}") for n in ("of", "to"))
        listed.write_text("\n".join(sources(self.folder, subject)), encoding="utf-8")
        options = (f"--reach-of={listed}", f"--reach-to={written}")
        if not self.pass_tests(900, *options, *subject.test_files(self.folder)):
            print(self.output.read_text(encoding="utf-8", errors="replace")[-3000:])
            sys.exit(f"mutate: the tests of {subject.name} fail without any mutant")
        return Reach.load(written)

    def order_tests(self, mutant: Mutant, reach: Reach) -> list[str]:
        """Return the tests that can notice a mutant, those most likely to first."""
        text = (self.folder / mutant.path).read_text(encoding="utf-8")
        return reach.order(mutant.path, find_statement(mutant.path, text, mutant.line))

    def try_mutant(self, mutant: Mutant, tests: list[str], limit: float) -> bool | None:
        """Return whether tests pass, in their order, with a mutant; None = not within a time."""
        order = self.folder.with_name(f"{self.folder.name}.order")
        order.write_text("\n".join(tests), encoding="utf-8")
        files = sorted({test.partition("::")[0] for test in tests})
        path = self.folder / mutant.path
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.apply(text), encoding="utf-8")
        try:
            return self.pass_tests(limit, f"--reach-order={order}", *files)
        finally:
            path.write_text(text, encoding="utf-8")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run(pairs: list[tuple[Subject, Mutant]], jobs: int, minutes: float) -> Iterator[Trial]:
    """Yield the result of each mutant, in the order in which they end."""
    end = time.monotonic() + minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="mutate-") as folder,
        ThreadPoolExecutor(jobs) as pool,
    ):
        free: SimpleQueue[Checkout] = SimpleQueue()
        for job in range(jobs):
            free.put(Checkout(Path(folder) / str(job) / ROOT.name))

        def measure(subject: Subject) -> Reach:
            checkout = free.get()
            try:
                return checkout.measure_reach(subject)
            finally:
                free.put(checkout)

        wanted = {subject.name: subject for subject, _ in pairs}
        reaches: dict[str, Reach] = {}
        for name, reach in zip(wanted, pool.map(measure, wanted.values()), strict=True):
            seconds = sum(reach.seconds.values())
            print(f"{name}: {len(reach.seconds)} tests pass in {seconds:.0f} s", flush=True)
            reaches[name] = reach

        def attempt(pair: tuple[Subject, Mutant]) -> Trial:
            subject, mutant = pair
            left = end - time.monotonic()
            if left <= 0:
                return Trial(subject.name, mutant, "untried")
            checkout = free.get()
            try:
                reach = reaches[subject.name]
                tests = checkout.order_tests(mutant, reach)
                limit = SLOWER * (STARTUP_S + sum(reach.seconds[test] for test in tests))
                passed = checkout.try_mutant(mutant, tests, min(limit, left))
            finally:
                free.put(checkout)
            if passed is None and left < limit:
                return Trial(subject.name, mutant, "untried")
            return Trial(subject.name, mutant, "survived" if passed else "killed")

        trials = [pool.submit(attempt, pair) for pair in pairs]
        yield from (trial.result() for trial in as_completed(trials))


def summarize(trials: list[Trial]) -> tuple[list[str], float]:
    """Return the lines to print, and the share of the tried mutants that were killed."""
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        counts.setdefault(trial.subject, Counter())[trial.result] += 1
    total = sum(counts.values(), Counter())
    lines = [
        f"survived: {t.mutant.path}:{t.mutant.line}: {t.mutant.old!r} -> {t.mutant.new!r}"
        for t in trials
        if t.result == "survived"
    ]
    for name, count in [*sorted(counts.items()), ("all", total)]:
        tried = count["killed"] + count["survived"]
        lines.append(f"{name}: killed {count['killed']} of {tried}; untried {count['untried']}")
    tried = total["killed"] + total["survived"]
    return lines, total["killed"] / tried if tried else 0.0


def main(arguments: list[str]) -> int:
    """Draw, try and print; return 1 where fewer are killed than asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--number", type=int, default=300, help="mutants drawn at most")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--at-least", type=float, default=90.0, help="per cent killed")
    parser.add_argument("--subject", action="append", help="of subjects.csv; all unless given")
    parser.add_argument("--again", type=Path, help="try only what survived in this earlier output")
    parser.add_argument("--list", action="store_true", help="print what is drawn, try nothing")
    options = parser.parse_args(arguments)
    everything = [p for p in draw(options.seed) if options.subject in (None, [p[0].name])]
    pairs = everything[: options.number]
    if options.again:
        earlier = set(
            re.findall(r"(?m)^survived: (.+?):\d+: (.+)$", options.again.read_text("utf-8"))
        )
        pairs = [p for p in pairs if (p[1].path, f"{p[1].old!r} -> {p[1].new!r}") in earlier]
    print(f"{len(pairs)} mutants, of {len(everything)} mutable statements, seed {options.seed}")
    if options.list:
        for subject, mutant in pairs:
            print(f"{subject.name}: {mutant.path}:{mutant.line}: {mutant.old!r} -> {mutant.new!r}")
        return 0
    trials = []
    for trial in run(pairs, options.jobs, options.minutes):
        trials.append(trial)
        m = trial.mutant
        print(f"{trial.result}: {m.path}:{m.line}: {m.old!r} -> {m.new!r}", flush=True)
    lines, score = summarize(trials)
    print("", *lines, f"score: {score:.0%}", sep="\n")
    return 0 if score * 100 >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
