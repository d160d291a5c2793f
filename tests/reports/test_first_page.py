"""The first page: figures with their change, a verdict and three actions; also as a mail's body."""

import email.policy
import json
import re
from datetime import timedelta
from decimal import Decimal
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typst", reason="PDF is an extra: fallow[reports]")
pytest.importorskip("vl_convert", reason="pictures are an extra: fallow[reports]")

from dashboards.figures import inbox
from dashboards.figures.query import Filters
from dashboards.reports.first_page import describe_change
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.answers import reports
from runtime.service.delivery import destinations
from runtime.service.delivery.outbox import Delivery
from tests.delivery.receivers import NOW, configured, posted
from tests.reports.small import END, WINDOW, fill, rows
from warehouse.lake import Warehouse

DAY = timedelta(days=1)


def write(views: Warehouse, window: Window, fmt: str = "md") -> reports.Report:
    return reports.produce(
        views, Settings(), audience="finance", window=window, fmt=fmt, now=END + DAY / 12
    )


def test_each_figure_has_its_change_against_a_whole_period_before(views: Warehouse) -> None:
    first, last = (write(views, Window(END - n * DAY, END - (n - 1) * DAY)).summary for n in (2, 1))
    before = re.findall(r"^Paid: (\S+) ", first, re.MULTILINE)[0]
    assert f", {before} before" in next(x for x in last.splitlines() if x.startswith("Paid"))
    assert re.search(r"^Wasted: .*; [+-][0-9.]+%, ", last, re.MULTILINE)
    # No analysis judged the day before, so what could be saved then is not known.
    assert re.search(r"^Could be saved: .*; change unknown: the last analysis", last, re.MULTILINE)


def test_without_whole_data_before_the_change_is_unknown_never_zero(tmp_path: Path) -> None:
    tables = rows(days=2)
    hour = (END - 1.5 * DAY).replace(tzinfo=None)
    tables["ledger"] = [row for row in tables["ledger"] if row["bucket"] != hour]
    settings = fill(tmp_path / "home", tables)
    with Warehouse.open(settings) as warehouse:
        gap = write(warehouse, Window(END - DAY, END)).summary
        none = write(warehouse, Window(END - 2 * DAY, END - DAY)).summary
    assert gap.count("change unknown: only 23 of 24 h of the 1d before have data") == 6
    assert none.count("change unknown: no data of the 1d before") == 6
    assert "0.0%, " not in gap + none


def test_change_of_an_amount_that_was_zero_is_the_amount_itself() -> None:
    assert describe_change(Decimal(4), Decimal(0)) == "$0.00 before"
    assert describe_change(None, Decimal(1)) == "change unknown: no price"
    assert describe_change(Decimal(110), Decimal(100)) == "+10.0%, $100 before"


def test_first_page_has_a_verdict_and_all_idle_workloads_as_one_action(views: Warehouse) -> None:
    text = write(views, WINDOW).summary
    verdict = r"^[0-9.]+% of the \$[0-9,.]+ paid was wasted, .* 3 workloads could save"
    assert re.search(verdict, text, re.MULTILINE)
    action = r"^[0-9]\. (.+): (\S+) (.+) in alpha \(saves \$([0-9.]+), "
    assert re.findall(action, text, re.MULTILINE) == [
        ("several teams", "suspend", "3 idle workloads to free", "7.50")
    ]
    assert "To do: suspend: 3 idle workloads to free ($7.50)." in text


def test_names_break_only_between_words(views: Warehouse) -> None:
    page = write(views, WINDOW, "html").body.decode()
    assert not re.search(r"anywhere|break-all|hyphens: auto", page)


def test_a_mail_s_body_is_the_first_page(tmp_path: Path, views: Warehouse) -> None:
    report = write(views, WINDOW)
    sent = Delivery("weekly", NOW, "mail", "sending", NOW, NOW, 1, NOW, "")
    with posted() as post:
        url = f"mailto://127.0.0.1:{post.port}/?from=f@corp.example&to=a@b.example&mode=insecure"
        settings = configured(tmp_path, {"mail": url})
        assert destinations.deliver_report(settings, sent, report, "").is_accepted
        mail: Any = message_from_bytes(post.is_accepted[0], policy=email.policy.default)
    body = mail.get_body().get_content()
    for words in ("paid was wasted", "Verified saved: ", "change unknown", "1. "):
        assert words in body


@pytest.mark.parametrize("audience", ["finance", "sre"])
def test_actions_name_their_cluster_where_the_fleet_has_several(
    audience: str, views: Warehouse
) -> None:
    fleet, one = (
        reports.produce(
            views, Settings(), audience=audience, cluster=cluster, window=WINDOW, fmt="md", now=END
        )
        for cluster in (None, "alpha")
    )
    action = r"^1\. .+: suspend 3 (idle workloads to free)(.*) \(saves"
    assert [re.findall(action, report.summary, re.MULTILINE)[0][1] for report in (fleet, one)] == [
        " in alpha",
        "",
    ]
    heads = [
        [line for line in report.body.decode().splitlines() if line.endswith("| saves |")]
        for report in (fleet, one)
    ]
    assert len(heads[0]) == len(heads[1]) == 2, "the first page's actions, and all advice"
    assert all("| cluster |" in line for line in heads[0])
    assert not any("| cluster |" in line for line in heads[1])


def test_actions_have_their_own_dollars_as_on_the_overview(tmp_path: Path) -> None:
    """A workload with two findings: $3.50 and $2; its page has both, the first page one step each.

    The second is of another analyzer: one decision does not settle both.
    """
    tables = rows(teams=("vision",))
    [found] = tables["finding"]
    document = json.loads(found["document"])
    document["recommendations"][0] |= {"verb": "shrink", "marginal_usd": 2.0}
    more = {"id": f"{9:012x}", "analyzer": "sizing", "document": json.dumps(document)}
    tables["finding"].append(found | more)
    with Warehouse.open(fill(tmp_path / "home", tables)) as warehouse:
        report = write(warehouse, WINDOW)
        listed = inbox.list_inbox(warehouse, WINDOW, Filters()).to_pylist()
    assert [row["usd"] for row in inbox.choose_steps(listed, 5)] == [Decimal("3.5"), Decimal(2)]
    assert "1. vision: suspend ns-vision/Job/job-vision in alpha (saves $3.50" in report.summary
    assert "1 workload could save $5.50" in report.summary
    one = "ns-vision/Job/job-vision of vision"
    assert f"To do: suspend: {one} ($3.50); shrink: {one} ($2.00)." in report.summary
