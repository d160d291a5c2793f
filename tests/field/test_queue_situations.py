"""Situations of workloads that wait for quota or for a place: a home each, asked at once."""

import pytest

from tests.field.homes import Homes, check_situation, list_parameters


@pytest.mark.parametrize("name", list_parameters(lambda situation: bool(situation.waits)))
def test_what_waits(name: str, homes: Homes) -> None:
    check_situation(homes, name)
