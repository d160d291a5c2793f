"""What every page is made of: what was asked, cards that load apart, text that is only text."""

import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import streamlit as st

from dashboards.charts import Chart
from dashboards.figures.asking import Filters
from dashboards.figures.extent import Extent
from dashboards.signin import Person
from fallow.errors import FallowError, TemporaryError
from fallow.settings import Settings
from fallow.window import Window

log = logging.getLogger("fallow.dashboard")

LONGEST = 80
"""Characters of a name in running text; tables and charts cut what is longer themselves."""
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:$<>&^=@\"'/])")
_DIRECTION = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Asked(msgspec.Struct, frozen=True):
    """What a page is asked: the window and filters of the URL, by whom, over which data."""

    window: Window
    filters: Filters
    extent: Extent
    person: Person
    settings: Settings


def plain(text: object, longest: int = LONGEST) -> str:
    """Return a name of a stranger so that Markdown shows exactly its characters.

    Control and direction characters are spelled out, what is too long is cut, and the whole is
    isolated, so that a name in another direction does not turn the words around it.
    """
    said = "".join(_visible(c) for c in str(text))
    said = said if len(said) <= longest else said[: longest - 1] + "…"
    return "\u2068" + _MARKUP.sub(r"\\\1", said) + "\u2069"


def money(usd: Decimal | None, *, cents: bool = False) -> str:
    """Write dollars for a metric or a sentence; the sign is escaped, for two make a formula."""
    if usd is None:
        return "no price"
    digits = 2 if cents or abs(usd) < 100 else 0  # noqa: PLR2004  (cents say nothing beyond)
    return f"{'-' if usd < 0 else ''}\\${abs(usd):,.{digits}f}"


def hours(gpu_hours: float) -> str:
    """Write GPU-hours."""
    return f"{gpu_hours:,.0f} GPU-h" if gpu_hours >= 100 else f"{gpu_hours:,.1f} GPU-h"  # noqa: PLR2004


def share(part: Any, whole: Any) -> str:
    """Write a part as a percentage of a whole."""
    return f"{float(part) / float(whole):.1%}" if part is not None and whole else "-"


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
        _say(st.warning, error)
        st.button("Try again", key=f"again-{body.__module__}.{body.__qualname__}")
    except FallowError as error:
        _say(st.error, error)
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


def _say(box: Callable[..., Any], error: FallowError) -> None:
    text = f"**{plain(error.message, 400)}**"
    box(f"{text}\n\n{plain(error.hint, 400)}" if error.hint else text)


def _visible(char: str) -> str:
    if _DIRECTION.match(char) or unicodedata.category(char) in ("Cc", "Cs", "Co", "Cn"):
        return f"\\u{ord(char):04x}"
    return char
