"""Read this folder's tables (`*.csv`): metrics, labels, and the queries that fill columns."""

from collections.abc import Sequence
from functools import cache

from fallow.resources import read_table

Row = dict[str, str]


@cache
def load_table(name: str) -> tuple[Row, ...]:
    """Return the rows of `<name>.csv` in the order of the file."""
    return tuple(read_table("collectors.prometheus", f"{name}.csv"))


def list_available(name: str, present: Sequence[str]) -> list[Row]:
    """Return the queries of a table whose metrics the server has; `queries`: the load as well."""
    metrics_present = set(present)
    rows = (*load_table(name), *(build_serving_queries() if name == "queries" else ()))
    return [row for row in rows if row["needs"] in metrics_present]


@cache
def build_serving_queries() -> tuple[Row, ...]:
    """Return the queries of `serving_load.csv`, with the columns of `queries.csv`.

    A gauge is the most of the range. Ranks of one engine print the same value and count once;
    engines, models and reasons add up. Of two names for one figure the later row counts.
    """
    queries = []
    for row in load_table("serving_load"):
        matchers = f"{row['matchers']},$selector" if row["matchers"] else "$selector"
        function = "rate" if row["form"] == "counter" else "max_over_time"
        same = ", ".join(["$replicas", *row["ranks"].split()])
        value = f"{function}({row['metric']}{{{matchers}}}[$range])"
        expression = f"sum by (namespace, pod) (max without ({same}) ({value}))"
        queries.append({"column": row["column"], "needs": row["metric"], "expression": expression})
    return tuple(queries)
