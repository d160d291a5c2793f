"""What every page is made of: what was asked, cards that load apart, text that is only text."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import streamlit as st

from dashboards.charts import Chart
from dashboards.figures.asking import Filters
from dashboards.figures.extent import Extent
from dashboards.signin import Person
from dashboards.text import hours, money, plain, share
from fallow.errors import FallowError, TemporaryError
from fallow.settings import Settings
from fallow.window import Window

log = logging.getLogger("fallow.dashboard")
__all__ = [
    "Asked",
    "card",
    "chart",
    "complain",
    "guard",
    "hours",
    "money",
    "nothing",
    "plain",
    "share",
    "table",
]


class Asked(msgspec.Struct, frozen=True):
    """What a page is asked: the window and filters of the URL, by whom, over which data."""

    window: Window
    filters: Filters
    extent: Extent
    person: Person
    settings: Settings


def card(body: Callable[[Asked], None], asked: Asked) -> None:
    """Draw one part of a page: apart from the others, and a failure stays inside it."""

    def guarded() -> None:
        with st.skeleton(height=160):
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


def nothing(what: str, then: str) -> None:
    """Say that there is nothing to show, and what to do about it. Both are our own words."""
    st.info(f"**{what}** {then}", icon=":material/inbox:")


def table(
    rows: pa.Table | Sequence[dict[str, Any]],
    columns: dict[str, Any],
    *,
    name: str,
    height: int | None = None,
) -> None:
    """Show rows as a table: `columns` maps a row's column to `st.column_config`, in order.

    Cells are drawn, not parsed: a name is shown as it is. Dollars keep their cents in the export.
    """
    shown = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([*rows])
    names = [column for column in columns if column in shown.column_names]
    st.dataframe(
        shown.select(names),
        column_config=columns,
        column_order=names,
        hide_index=True,
        height="auto" if height is None else height,
        alt=name,
    )


def chart(drawn: Chart, alt: str) -> None:
    """Show a chart with words for those who cannot see it."""
    st.altair_chart(drawn, alt=alt)


def complain(error: FallowError) -> None:
    """Say what failed and what to do next."""
    box = st.warning if isinstance(error, TemporaryError) else st.error
    text = f"**{plain(error.message, 400)}**"
    box(f"{text}\n\n{plain(error.hint, 400)}" if error.hint else text)
