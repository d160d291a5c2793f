"""A mixed-integer program, row by row, and HiGHS (through SciPy) to solve it."""

from collections.abc import Iterable

import msgspec
import numpy as np

from fallow.fragmentation import Reals

_INFEASIBLE = 2
"""HiGHS's status codes in SciPy's numbering."""


class ProgramSolution(msgspec.Struct, frozen=True):
    """The result within the time limit."""

    values: Reals | None
    """By column; None = no solution was found."""
    bound: float
    """Lower bound of the cost."""
    none: bool
    """True: the program is proved infeasible."""


class IntegerProgram:
    """Rows and columns of one program; every variable is a whole number from 0 to its limit."""

    def __init__(self) -> None:
        self._limits: list[int] = []
        self._costs: list[float] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._ends = [0]
        self._bounds: list[float] = []

    def variable(self, limit: int = 1, cost: float = 0.0) -> int:
        """Add a variable; return its column."""
        self._limits.append(limit)
        self._costs.append(cost)
        return len(self._limits) - 1

    def at_most(self, terms: Iterable[tuple[int, float]], bound: float) -> None:
        """Add a row: the sum of coefficient times variable is at most `bound`."""
        row: dict[int, float] = {}
        for column, value in terms:
            row[column] = row.get(column, 0.0) + value
        self._columns += row
        self._values += row.values()
        self._ends.append(len(self._columns))
        self._bounds.append(bound)

    def solve(self, seconds: float) -> ProgramSolution:
        """Minimise the cost within a time limit in seconds."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (0.3 s)
        from scipy.sparse import csr_array  # noqa: PLC0415

        shape = len(self._bounds), len(self._limits)
        matrix = csr_array((self._values, self._columns, self._ends), shape=shape)
        solution = milp(
            self._costs,
            integrality=np.ones(len(self._limits)),
            bounds=Bounds(0, np.array(self._limits, float)),
            constraints=LinearConstraint(matrix, -np.inf, self._bounds),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        bound = solution.mip_dual_bound
        return ProgramSolution(
            None if solution.x is None else np.round(solution.x),
            0.0 if bound is None or not np.isfinite(bound) else float(bound),
            solution.status == _INFEASIBLE,
        )
