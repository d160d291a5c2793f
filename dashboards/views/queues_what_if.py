"""What the site's own past would have been with another quota, pool or priority."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

import streamlit as st

from dashboards import data, filters, page, what_if_runs
from dashboards.figures import queues
from dashboards.page import PageRequest, escape, format_money
from dashboards.what_if_runs import WhatIfQuestion, WhatIfResult, WhatIfRuns
from fallow.window import Window, format_duration

LONGEST = timedelta(days=7)
"""The longest past that the page replays; the command replays any."""
POLL_S = 2
OPTIONS = {"pool": "a pool", "quota": "a quota", "priority": "a priority"}
MEANINGS = {
    "pool": "A pool: all nodes of a model have so many GPUs.",
    "quota": "A quota: a team or a queue has so many GPUs.",
    "priority": "A priority: the pods of a team have it.",
}
NUMBERS = {"pool": "GPUs", "quota": "GPUs", "priority": "Priority"}
ROLE: Literal["operator"] = "operator"
"""The role that starts a replay: it takes a core of this machine for a while."""
TEAMS = page.read_columns("queues_what_if/teams")


def show(request: PageRequest) -> None:
    """Let people ask, and show the last answer."""
    runs = what_if_runs.get_runs()
    if runs is None:
        page.show_nothing(
            "Nothing answers a what-if here.",
            "`fallow dashboard` and `fallow up` serve pages that do; `fallow what-if` answers it "
            "in a terminal.",
        )
        return
    _request_replay(request, runs)
    if runs.running is not None:
        _show_progress(runs)
    if runs.last is not None:
        _show_result(runs.last)
    else:
        page.note("No answer since these pages were started.")


def _request_replay(request: PageRequest, runs: WhatIfRuns) -> None:
    columns = st.columns([3, 3, 2, 2], vertical_alignment="bottom")
    with columns[0]:
        option = st.selectbox(
            "What if there were",
            [*OPTIONS],
            key="option",
            format_func=OPTIONS.__getitem__,
            bind="query-params",
        )
    with columns[1]:
        name = st.selectbox(
            "Of",
            _list_names(request, option),
            index=None,
            key="of",
            placeholder="a name",
            accept_new_options=True,
            bind="query-params",
        )
    with columns[2]:
        number = st.number_input(
            NUMBERS[option],
            min_value=0,
            max_value=1_000_000,
            value=None,
            step=1,
            key="number",
            bind="query-params",
        )
    allowed = request.person.may(ROLE)
    with columns[3]:
        started = st.button(
            "Replay",
            key="replay",
            icon=":material/replay:",
            disabled=not allowed or not name or number is None or runs.running is not None,
            help="Replay the past as it was, and with this"
            if allowed
            else f"Starting a replay takes the role {ROLE}.",
        )
    window = _choose_window(request)
    page.note(
        f"{MEANINGS[option]} Replays {window.start:%Y-%m-%d %H:%M} to "
        f"{window.end:%Y-%m-%d %H:%M} UTC in a process beside the pages, two minutes "
        "at most, one replay at a time. It reads only. "
        "`fallow what-if` replays longer windows, several settings at once, and policies."
    )
    if started and name and number is not None:
        question = WhatIfQuestion(
            cast(Literal["quota", "pool", "priority"], option),
            str(name),
            int(number),
            window,
            request.filters.cluster,
        )
        runs.start(request.settings, question)


def _choose_window(request: PageRequest) -> Window:
    """Return the last week of the page's window, where there are data."""
    end = min(request.window.end, request.extent.samples.end)
    start = max(request.window.start, request.extent.samples.start, end - LONGEST)
    return Window(min(start, end - timedelta(hours=1)), end)


def _list_names(request: PageRequest, option: str) -> list[str]:
    names = filters.list_names(request.extent)
    if option == "pool":
        return [*names.get("model", ())]
    if option == "priority":
        return [*names.get("team", ())]
    quotas = data.query(queues.read_quotas, request.window, request.filters)["name"].to_pylist()
    return [*dict.fromkeys([*names.get("team", ()), *quotas])]


def _show_progress(runs: WhatIfRuns) -> None:
    """Say how long the replay takes so far, and draw the page again when it is done."""

    def tick() -> None:
        running = runs.running
        if running is None:
            st.rerun()
        question, since = running
        seconds = max(0.0, (datetime.now(UTC) - since).total_seconds())
        st.info(
            f"Replaying since {format_duration(seconds)}: {escape(' '.join(question.words), 200)}",
            icon=":material/hourglass_top:",
        )

    st.fragment(tick, run_every=POLL_S)()


def _show_result(result: WhatIfResult) -> None:
    question = result.question
    page.show_heading("The last answer")
    st.markdown(
        f"**{question.option} of {escape(question.name, 120)}: {question.number:,}**, from "
        f"{question.window.start:%Y-%m-%d %H:%M} to {question.window.end:%Y-%m-%d %H:%M} UTC, "
        f"answered at {result.answered_at:%Y-%m-%d %H:%M} UTC. In a terminal: "
        f"{escape(' '.join(question.words), 300)}"
    )
    if result.answer is None:
        if result.error is not None:
            page.complain(result.error)
        return
    _show_answer(dict(result.answer))


def _show_answer(answer: dict[str, Any]) -> None:
    calibration = answer["calibration"]
    # Whether it may be trusted stands above what it says.
    box = st.success if calibration["trust"] == "trusted" else st.warning
    box(f"**{escape(calibration['trust'].capitalize())}:** {escape(calibration['why'], 600)}")
    before, after = answer["before"], answer["after"]
    usd = answer["dollars"]["usd"]
    kind = answer["dollars"]["kind"]
    page.show_metrics(
        *(
            (
                f"Wait, {name[:3]}",
                _format_wait(
                    after["waits"][name],
                    bound=name == "p95_s" and after["waits"]["p95_is_bound"],
                ),
                f"before: {_format_wait(before['waits'][name])}",
            )
            for name in ("p50_s", "p95_s")
        ),
        (
            "Utilisation",
            _format_part(after["utilisation"]),
            f"before: {_format_part(before['utilisation'])}",
        ),
        ("Preemptions", f"{after['preemptions']:,}", f"before: {before['preemptions']:,}"),
        (
            "Dollars",
            "none" if kind == "none" else format_money(None if usd is None else _convert(usd)),
            "the same nodes are paid" if kind == "none" else f"{kind}, in the window",
        ),
    )
    page.show_table(
        [_build_row(row) for row in answer["what-if"]],
        TEAMS,
        table_name="Teams before and after",
        missing="",
    )
    page.note("  \n".join(escape(note, 300) for note in answer["notes"]))


def _build_row(row: dict[str, Any]) -> dict[str, Any]:
    minutes = {
        f"{name[:-2]}_min": None if row[name] is None else row[name] / 60
        for name in ("wait_p50_s", "wait_p50_after_s", "wait_p95_s", "wait_p95_after_s")
    }
    return {**row, **minutes}


def _format_wait(seconds: float | None, *, bound: bool = False) -> str:
    if seconds is None:
        return "unknown"
    return f"{'≥ ' if bound else ''}{format_duration(seconds)}"


def _format_part(part: float | None) -> str:
    return "unknown" if part is None else f"{part:.1%}"


def _convert(usd: float) -> Any:
    return page.convert_exact(round(usd, 2))
