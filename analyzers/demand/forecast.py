"""Forecast a queue's demand of the next day by hour, with quantiles; refused if naive is as good.

The model is a regression on the calendar (hour of day, weekdays and weekends apart) and on past
demand (the day before: its mean and the same hour; the week before: the same hour), solved by
numpy. The quantiles are those of its own errors on the days before, so their width follows the
errors.

statsmodels (ETS, STL, Theta) was tried: 44 MB, 4.3 CPU-seconds to import, 0.03-0.07 s per fit of a
month, of which a back-test needs hundreds. statsforecast requires pandas below 3. One least-squares
solve per queue and day takes a millisecond and needs no further dependency.
"""

import msgspec
import numpy as np

from analyzers.arrays import Doubles

DAY, WEEK = 24, 7
LEAST_DAYS = 21
"""Minimum days of history for a forecast: two weeks to learn, one to be scored."""
WARM_UP = 3
"""Days with known errors before quantiles are scored."""
LEARNED = 14
SCORED = (0.5, 0.9)
"""Quantiles whose pinball losses are compared."""
DECIMALS = (0.1, 0.5, 0.9, 0.99)
RIDGE = 1e-3
EPS = 1e-9


class DemandForecast(msgspec.Struct, frozen=True):
    """The next day's demand in GPUs, or why there is no forecast."""

    refused: str | None
    skill: float | None
    """1 - pinball loss / that of seasonal-naive, over the back-test's days."""
    loss: float | None
    naive_loss: float | None
    days: int
    quantiles: dict[str, list[float]]
    """By quantile, 24 hours."""


def forecast_day(demand: Doubles, first_weekday: int, least_skill: float) -> DemandForecast:
    """Forecast the day after whole days of hourly demand.

    `first_weekday` is that of the first day, 0 = Monday. Each day of the back-test is forecast
    from the days before it alone (rolling origin).
    """
    days = len(demand) // DAY
    table = demand[len(demand) - days * DAY :].reshape(days, DAY)
    if days < LEAST_DAYS:
        return DemandForecast(
            f"{days} days of history: {LEAST_DAYS} are needed", None, None, None, days, {}
        )
    origins = range(LEARNED, days)
    predicted = np.stack([_predict_next(table[:o], first_weekday) for o in origins])
    naive = np.stack([table[o - WEEK] for o in origins])
    truth = table[LEARNED:]
    loss, plain = _score(predicted, truth), _score(naive, truth)
    if plain <= EPS:
        refusal = "next week repeats this week exactly: nothing is better than seasonal-naive"
        return DemandForecast(refusal, None, round(loss, 6), 0.0, days, {})
    skill = 1 - loss / plain
    scores = round(skill, 4), round(loss, 6), round(plain, 6)
    if skill < least_skill:
        refusal = f"{skill:+.1%} against seasonal-naive, at least {least_skill:+.1%} is asked"
        return DemandForecast(refusal, *scores, days, {})
    ahead, errors = _predict_next(table, first_weekday), (truth - predicted).ravel()
    quantiles = {
        f"{q:g}": [round(float(v), 3) for v in np.maximum(ahead + np.quantile(errors, q), 0)]
        for q in DECIMALS
    }
    return DemandForecast(None, *scores, days, quantiles)


def compute_pinball(truth: Doubles, forecast: Doubles, quantile: float) -> float:
    """Return the mean pinball loss of a quantile: q above it, 1 - q below it, per unit of miss."""
    miss = truth - forecast
    return float(np.maximum(quantile * miss, (quantile - 1) * miss).mean())


def _score(predicted: Doubles, truth: Doubles) -> float:
    """Return the pinball loss of point forecasts whose quantiles come from their past errors."""
    errors = truth - predicted
    losses = []
    for day in range(WARM_UP, len(predicted)):
        past = errors[:day].ravel()
        losses += [
            compute_pinball(truth[day], np.maximum(predicted[day] + np.quantile(past, q), 0), q)
            for q in SCORED
        ]
    return float(np.mean(losses))


def _predict_next(table: Doubles, first_weekday: int) -> Doubles:
    """Forecast the day after the table's days (rows) by hour (columns)."""
    days = len(table)
    facts = np.concatenate(
        [_build_features(table, day, first_weekday) for day in range(WEEK, days)]
    )
    values = table[WEEK:].ravel()
    square = facts.T @ facts + RIDGE * np.eye(facts.shape[1])
    weights = np.linalg.solve(square, facts.T @ values)
    ahead: Doubles = np.maximum(_build_features(table, days, first_weekday) @ weights, 0)
    return ahead


def _build_features(table: Doubles, day: int, first_weekday: int) -> Doubles:
    """Return the features of a day that are known before it begins: a row per hour."""
    weekend = (first_weekday + day) % WEEK >= WEEK - 2
    calendar = np.zeros((DAY, 2 * DAY))
    calendar[np.arange(DAY), np.arange(DAY) + DAY * weekend] = 1
    before = table[day - 1]
    level = np.full(DAY, before.mean())
    return np.column_stack([calendar, level, before, table[day - WEEK]])
