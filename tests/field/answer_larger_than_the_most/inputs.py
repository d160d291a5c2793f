"""A Prometheus that refuses answers of more bytes than it likes, with a line of text."""

from tests.field.front import refuse_longer
from tests.field.through_a_front import build_situation

SITUATION = build_situation(
    refuse_longer(1, 413, b"response larger than the max (181673024 vs 52428800)\n")
)
