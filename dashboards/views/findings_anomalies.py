"""Hours that cost more than usual."""

from dashboards import charts, data, page
from dashboards.figures import anomalies
from dashboards.page import PageRequest


def show_usual(request: PageRequest) -> None:
    """Draw each hour beside the same hour of the weeks before."""
    rows = data.query(anomalies.read_usual, request.window, request.filters)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    recent = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
    page.chart(
        charts.draw_usual_lines(recent), "Dollars per hour beside what is usual in that hour"
    )
    weeks = max(rows["weeks"].to_pylist())
    if not weeks:
        page.note(
            "No week before this window has data of every cluster, so nothing is called usual."
        )
