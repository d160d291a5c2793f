"""What every page is made of: what was asked, cards that load apart, text that is only text."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboards import data
from dashboards.charts import Chart
from dashboards.figures import analyzed
from dashboards.figures.asking import Filters
from dashboards.figures.extent import Extent
from dashboards.signin import Person
from dashboards.text import exact, hours, money, plain, share, visible
from fallow.errors import FallowError, TemporaryError
from fallow.settings import Settings
from fallow.window import Window
from warehouse.coverage import Coverage

log = logging.getLogger("fallow.dashboard")
__all__ = [
    "Asked",
    "by",
    "card",
    "chart",
    "complain",
    "exact",
    "guard",
    "heading",
    "hours",
    "metrics",
    "moment",
    "money",
    "name",
    "nobody",
    "note",
    "nothing",
    "number",
    "percent",
    "plain",
    "share",
    "table",
    "usd",
    "visible",
]


class Asked(msgspec.Struct, frozen=True):
    """What a page is asked: the window and filters of the URL, by whom, over which data."""

    window: Window
    filters: Filters
    extent: Extent
    coverage: Coverage
    person: Person
    settings: Settings


def card(body: Callable[[Asked], None], asked: Asked, *, height: int = 160) -> None:
    """Draw one part of a page: apart from the others, and a failure stays inside it.

    `height`: of what stands there until it is drawn, in pixels; 0 = nothing.
    """

    def guarded() -> None:
        with st.skeleton(height=height) if height else nullcontext():
            guard(body, asked)

    guarded.__module__, guarded.__qualname__ = body.__module__, body.__qualname__
    st.fragment(guarded, parallel=True)()


def guard(body: Callable[..., None], *args: Any) -> None:
    """Run a part of a page; what fails is said in words, never as a traceback."""
    try:
        body(*args)
    except TemporaryError as error:
        complain(error)
        st.button("Try again", key=f"again-{body.__module__}.{body.__qualname__}")
    except FallowError as error:
        complain(error)
    except Exception:
        log.exception("a part of a page failed", extra={"part": body.__qualname__})
        st.error(
            "This part of the page failed. It is a defect of Fallow; the dashboard's log has "
            "the details.",
            icon=":material/error:",
        )


def heading(text: str) -> None:
    """Head a card. Our own words."""
    st.subheader(text, anchor=False)


def note(text: str) -> None:
    """Say how a figure is to be read. Our own words; names in it through `plain`."""
    st.caption(text)


def nobody(asked: Asked) -> None:
    """Say that nothing is accounted for whom the filters name in this window."""
    chosen = ", ".join(f"{key} {plain(name, 40)}" for key, name in asked.filters.named.items())
    if chosen:
        nothing(
            f"Nothing is accounted for {chosen} in this window.",
            "Check the spelling, clear a filter, or choose a longer window.",
        )
        return
    nothing(
        "No hour of this window is accounted yet.",
        "`fallow up` does the books every five minutes; `fallow collect --once` does them now.",
    )


def nothing(what: str, then: str) -> None:
    """Say that there is nothing to show, and what to do about it. Both are our own words."""
    st.info(f"**{what}** {then}", icon=":material/inbox:")


def none(asked: Asked, analyzers: Sequence[str], what: str, then: str) -> None:
    """Say that no finding of these analyzers (none = any) is there: none, or not judged."""
    absence = data.ask(analyzed.absence, asked.window, tuple(analyzers))
    if not absence.why:
        nothing(what, then)
        return
    nothing(absence.what or what, " ".join(plain(why, 600) for why in absence.why))


def table(
    rows: pa.Table | Sequence[dict[str, Any]],
    columns: dict[str, Any],
    *,
    called: str,
    height: int | None = None,
    key: str | None = None,
    on_select: Callable[[], None] | None = None,
) -> None:
    """Show rows as a table: `columns` maps a row's column to `st.column_config`, in order.

    Cells are drawn, not parsed: a name is shown as it is. Dollars keep their cents in the export.
    `on_select` is called when a row was clicked; `st.session_state[key]` says which.
    """
    shown = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([*rows])
    names = [column for column in columns if column in shown.column_names]
    shown = pa.table({n: _shown(n, shown[n]) for n in names})
    st.dataframe(
        shown,
        column_config=columns,
        column_order=names,
        hide_index=True,
        height="auto" if height is None else height,
        alt=called,
        key=key,
        on_select=on_select or "ignore",
        selection_mode="single-row",
    )


def usd(label: str, told: str | None = None) -> Any:
    """Return how a column of dollars is shown."""
    return st.column_config.NumberColumn(label, format="dollar", help=told)


def number(label: str, told: str | None = None) -> Any:
    """Return how a column of GPU-hours, or of anything counted, is shown."""
    return st.column_config.NumberColumn(label, format="localized", help=told)


def name(label: str, width: Literal["small", "medium", "large"] = "medium") -> Any:
    """Return how a column of names is shown: drawn as it is, whatever it holds."""
    return st.column_config.TextColumn(label, width=width)


def moment(label: str) -> Any:
    """Return how a column of moments (UTC) is shown."""
    return st.column_config.DatetimeColumn(label, format="YYYY-MM-DD HH:mm", timezone="UTC")


def percent(label: str, told: str | None = None) -> Any:
    """Return how a column of percentages is shown: a bar and the number."""
    return st.column_config.ProgressColumn(
        label, format="%.1f%%", min_value=0, max_value=100, help=told
    )


def metrics(*cells: tuple[str, str, str]) -> None:
    """Show figures side by side: label, value and one line about it. All are our own words."""
    for column, (label, value, about) in zip(st.columns(len(cells)), cells, strict=True):
        column.metric(
            label,
            value,
            about or None,
            delta_color="off",
            delta_arrow="off",
            border=True,
            height="stretch",
        )


def by(keys: Sequence[str], first: str = "team") -> str:
    """Let people choose what a table is by; the choice stands in the URL."""
    chosen = st.segmented_control(
        "By", [*keys], default=first, required=True, key="by", bind="query-params"
    )
    return chosen or first


def chart(drawn: Chart, alt: str) -> None:
    """Show a chart with words for those who cannot see it."""
    st.altair_chart(drawn, alt=alt)


def complain(error: FallowError) -> None:
    """Say what failed and what to do next."""
    box = st.warning if isinstance(error, TemporaryError) else st.error
    text = f"**{plain(error.message, 400)}**"
    box(f"{text}\n\n{plain(error.hint, 400)}" if error.hint else text)


def _shown(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Round what is counted to one digit (dollars keep all of theirs); spell out odd characters."""
    if pa.types.is_string(column.type):
        return pa.array(
            [None if t is None else visible(t) for t in column.to_pylist()], pa.string()
        )
    counted = pa.types.is_floating(column.type) and "usd" not in name
    return pc.round(column, ndigits=1) if counted else column
