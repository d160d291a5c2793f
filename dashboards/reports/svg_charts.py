"""Draw charts as SVG without a browser, in the text and line colours of the page around them."""

import re
from html import escape
from typing import TYPE_CHECKING, Any

from fallow.errors import UsageError, advise_extra

if TYPE_CHECKING:
    from dashboards.charts import Chart

INK, LINE = "#010203", "#010204"
"""Placeholders of the page's text colour and line colour until a writer replaces them."""
_IDS = re.compile(r'(\bid="|url\(#|href="#)')
HOW = f"{advise_extra('reports')} brings what draws them: typst, vl-convert-python and altair"


def render_svg(chart: "Chart", width: int, font: str) -> str:
    """Return a chart as SVG; it never loads an outside address.

    Raises:
        UsageError: the renderer is not installed.
    """
    try:
        import vl_convert  # noqa: PLC0415  (0.2 s and 60 MB that no other command needs)
    except ImportError as error:
        raise UsageError("pictures of reports are not installed", hint=HOW) from error
    spec = chart.properties(width=width).configure(**_chart_theme(font)).to_json()
    svg_text: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg_text


def inline(svg_text: str, number: int, alt: str) -> str:
    """Return an SVG for inside a page: with its own ids, and the page's text and line colours."""
    renamed = _IDS.sub(rf"\g<1>p{number}-", svg_text)
    renamed = renamed.replace(INK, "currentColor")
    renamed = renamed.replace(f'stroke="{LINE}"', 'stroke="currentColor" stroke-opacity="0.16"')
    head, _, rest = renamed.partition(">")
    head = re.sub(r' (width|height|aria-[a-z]+|role)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(alt)}">{rest}'


def convert_for_print(svg_text: str) -> bytes:
    """Return an SVG for paper: dark ink, pale lines."""
    return svg_text.replace(INK, "#1f2937").replace(LINE, "#e2e5ea").encode()


def _chart_theme(font: str) -> dict[str, Any]:
    text = {"labelColor": INK, "titleColor": INK, "labelFont": font, "titleFont": font}
    quiet = {"titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 11}
    return {
        "background": "transparent",
        "font": font,
        "axis": {**text, **quiet, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE},
        "legend": {**text, **quiet, "orient": "top"},
        "view": {"stroke": None},
        "text": {"font": font},
    }
