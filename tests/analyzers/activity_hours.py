"""One question at a time for `ActivityHours`, which answers arrays of them."""

import numpy as np

from analyzers.idle.return_probability import ActivityHours


class SingleQuestions:
    """The hours of workloads, with an answer to one question."""

    def __init__(self, hours: ActivityHours) -> None:
        self.hours = hours

    def rest_since(self, owner: int, now: int, start: int) -> int:
        """Return the hour since which a workload has been inactive."""
        return int(self.hours.rest_since(*(np.array([v]) for v in (owner, now, start)))[0])

    def exposures(self, owner: int, now: int, begin: int, ahead: int) -> tuple[int, ...]:
        """Return exposures, returns, own days and own returns."""
        answer = self.hours.count_exposures(
            np.array([owner]), np.array([now]), np.array([begin]), ahead
        )
        return tuple(answer[0].tolist())
