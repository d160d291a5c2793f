"""The spans of one rate that follow each other are one row of an explanation."""

from runtime.operations.analysis.explanations import join_spans


def test_adjacent_spans_of_one_rate_are_one_row() -> None:
    spans = [("a", 0, 1, 2.0), ("b", 0, 1, 2.0), ("a", 1, 2, 2.0), ("a", 3, 4, 2.0), ("a", 4, 5, 3)]
    names = ("device", "from_at", "to_at", "loaded_usd_h")
    rates = [dict(zip(names, span, strict=True)) for span in spans]
    assert [tuple(row.values()) for row in join_spans(rates)] == [
        ("a", 0, 2, 2.0),
        ("a", 3, 4, 2.0),
        ("a", 4, 5, 3),
        ("b", 0, 1, 2.0),
    ]
