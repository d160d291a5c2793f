"""A gateway that gives up on long queries."""

from tests.field.front import refuse_longer
from tests.field.through_a_front import build_situation

SITUATION = build_situation(
    refuse_longer(1, 504, b"<html><head><title>504 Gateway Time-out</title></head></html>")
)
