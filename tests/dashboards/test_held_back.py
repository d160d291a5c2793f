"""What teams hold back, by reason, with its dollars."""

from decimal import Decimal

from dashboards.figures.policy_actions import HeldBack, PlannedCase, sum_held_back
from fallow.action_models import Reason


def case(team: str, usd: str | None, *reasons: tuple[str, str]) -> PlannedCase:
    texts = tuple(Reason(gate, text) for gate, text in reasons)
    return PlannedCase(team, texts, 2.0, None if usd is None else Decimal(usd))


KEEP = ("held", "held by PDB ml/keep: it allows no disruption")
WAITS = [("held", f"requests at its servers: {n} wait") for n in (3, 12)]


def test_the_dollars_of_each_reason_are_summed_by_team() -> None:
    rows = sum_held_back(
        [
            case("red", "24.00", WAITS[0], ("trusted", "no back-test")),
            case("red", "48.00", WAITS[1]),
            case("blue", "60.00", KEEP, ("veto", "an annotation asks for it")),
            case("blue", None, KEEP),
            case("blue", "99.00", ("trusted", "no back-test")),
        ]
    )
    assert rows == [
        HeldBack("red", "requests at its servers", 2, 4.0, Decimal("72.00")),
        HeldBack("blue", "held by PDB ml/keep", 2, 4.0, Decimal("60.00")),
        HeldBack("blue", "an annotation asks for it", 1, 2.0, Decimal("60.00")),
    ]


def test_a_reason_without_a_price_has_none() -> None:
    assert sum_held_back([case("red", None, KEEP)]) == [
        HeldBack("red", "held by PDB ml/keep", 1, 2.0, None)
    ]
    assert sum_held_back([]) == []
