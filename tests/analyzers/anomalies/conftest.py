"""A ledger by the hour: what teams hold, use and pay, for weeks before the window and in it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fallow.window import Window

END = datetime(2026, 11, 16, tzinfo=UTC)
NAIVE = END.replace(tzinfo=None)
USD = {"H100": "6.88", "A100": "3.43", "L4": "0.80"}
Course = Callable[[int], float]


class Books:
    """Some weeks of history, and a window of days at the end of them."""

    def __init__(self, views: Any, weeks: int = 5, days: int = 7) -> None:
        self.views = views
        self.hours = weeks * 168 + days * 24
        self.first = -days * 24
        """The window's first hour, counted from its end."""
        self.window = Window(END - timedelta(days=days), END)

    def post(
        self,
        team: str | None,
        states: Mapping[str, Course | float],
        *,
        namespace: str | None = None,
        model: str = "H100",
        workload: str = "train",
        price: Callable[[int], str | None] | None = None,
        skip: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Write so many GPUs in each state; a course is asked for each hour from the end (-1)."""
        space = f"team-{team}" if namespace is None else namespace
        rows = []
        for hour in range(-self.hours, 0):
            if skip(hour):
                continue
            each = USD[model] if price is None else price(hour)
            for state, course in states.items():
                gpus = course if isinstance(course, (int, float)) else course(hour)
                if gpus <= 0:
                    continue
                usd = None if each is None else Decimal(each) * Decimal(repr(gpus))
                rows.append(
                    {
                        "cluster": "c", "bucket": NAIVE + timedelta(hours=hour), "state": state,
                        "device": f"{space}-{workload}-{model}", "namespace": space,
                        "workload_kind": "Job" if space else "", "team": team,
                        "workload": workload if space else "", "model": model, "seconds": 3600.0,
                        "gpu_seconds": gpus * 3600.0, "priced": each is not None,
                        "usd": None if usd is None else usd.quantize(Decimal("1e-8")),
                    }
                )  # fmt: skip
        self.views.rows("ledger", rows)

    def rest(self, gpus: float = 100.0, **more: Any) -> None:
        """Let so many GPUs be free all the time, so that teams are small beside the fleet."""
        self.post(None, {"free": gpus}, namespace="", workload="", **more)


@pytest.fixture
def make_books(views: Any) -> Any:
    return lambda **size: Books(views, **size)
