"""The ledger's statement joins by keys: its cost grows with the fleet, not with its square."""

import json
from typing import Any

from fallow.settings import Settings
from warehouse.ledger import STEPS, build_parameters, write_ledger
from warehouse.steps import compose_query


def test_no_join_of_devices_compares_every_row_with_every_row(tables: Any, builders: Any) -> None:
    span = builders.window(0, 120)
    tables.put("device", [builders.device("g", 120)])
    tables.put("rollup_5m", builders.looks("g", 0, 120))
    held = {"namespace": "ns", "pod": "p", "pod_uid": "p", "share": 1.0, "start": builders.at(30)}
    tables.put("allocation", [{"cluster": "c", "device": "g", "end": builders.at(90), **held}])
    write_ledger(tables, span)
    sql = f"EXPLAIN (FORMAT json) {compose_query(STEPS)}"
    plan = tables.query(sql, build_parameters(span, Settings()))["explain_value"][0].as_py()
    operators = [operator for step in json.loads(plan) for operator in _list_operators(step)]
    conditions = [
        operator["extra_info"]["Condition"]
        for operator in operators
        if operator["name"].strip() == "BLOCKWISE_NL_JOIN"
    ]
    assert [condition for condition in conditions if "device_id" in condition] == []


def _list_operators(step: dict[str, Any]) -> list[dict[str, Any]]:
    below = [operator for child in step["children"] for operator in _list_operators(child)]
    return [step, *below]
