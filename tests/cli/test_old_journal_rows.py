"""Rows that an older Fallow journalled with values of env: nothing that is printed has them."""

import copy
from typing import Any

import pytest

from actions.journal import event_types
from actions.journal.warehouse_copy import copy_journal
from fallow.settings import load
from tests.actions.loop.site import Site, pod_spec
from tests.cli.conftest import Fallow
from tests.cli.test_acting import cli as cli  # noqa: PLC0414  (a fixture)
from tests.cli.test_acting import done
from tests.cli.test_acting import site as site  # noqa: PLC0414  (a fixture)
from warehouse.lake import Warehouse

ENV, PASSWORD = "marker-env-of-old", "marker-url-of-old"
OLD = "0ld0ld0ld0ld"


def write_old_rows(site: Site) -> None:
    """Append an action, and a failed one of its snapshots, as Fallow wrote them at first."""
    journal = site.journal()
    (entry,) = journal.entries(event_types.INTENT)
    spec: Any = pod_spec()
    spec["containers"][0] |= {
        "env": [{"name": "TOKEN", "value": ENV}],
        "args": [f"--db=postgres://me:{PASSWORD}@db/x"],
    }
    document = copy.deepcopy(entry.document)
    document["action"]["id"] = OLD
    for change in document["action"]["intent"]["undo"]:
        change["body"] = {"kind": "Pod", "spec": spec}
    journal.append(event_types.INTENT, OLD, document)
    why = f"https://me:{PASSWORD}@api did not answer"
    reasons = [{"gate": "away", "text": why}]
    outcome = {"action": OLD, "result": "failed", "at": site.now, "reasons": reasons, "pod": spec}
    journal.append(event_types.OUTCOME, OLD, outcome)


@pytest.mark.parametrize(
    "command",
    [
        ("actions",),
        ("actions", "-o", "json"),
        ("actions", OLD),
        ("actions", OLD, "-o", "json"),
        ("actions", OLD, "-o", "csv"),
        ("explain", OLD),
        ("explain", OLD, "-o", "json"),
        ("warehouse", "query", "SELECT document FROM action", "-o", "json"),
    ],
    ids=" ".join,
)
def test_nothing_printed_of_an_old_row_has_a_secret(
    site: Site, cli: Fallow, command: tuple[str, ...]
) -> None:
    done(site)
    write_old_rows(site)
    settings = load().settings
    with Warehouse.open(settings, write=True) as lake:
        copy_journal(site.journal(), lake, "c")
    assert site.journal().verify() is None, "the chain is as it was written"
    ran = cli(*command)
    assert ran.code == 0, ran
    assert ENV not in ran.out + ran.err
    assert PASSWORD not in ran.out + ran.err
    assert OLD in ran.out or "***" in ran.out
