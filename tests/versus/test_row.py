"""Who is ahead: for rates the larger, for times and sizes the smaller."""

import pytest
from bench.versus.contender import KAFKA, RESPOOL, RESPOOL_SYNCED
from bench.versus.row import Row, Unit, Verdict


def _row(unit: Unit, *, respool: float, kafka: float) -> Row:
    return Row(
        family="Produce", name="base", unit=unit, samples={RESPOOL: [respool], KAFKA: [kafka]}
    )


def test_a_larger_rate_is_ahead() -> None:
    row = _row(Unit.MESSAGES_PER_S, respool=300.0, kafka=200.0)
    assert row.ratio() == row.advantage() == pytest.approx(1.5)
    assert row.verdict is Verdict.RESPOOL_AHEAD


def test_a_larger_latency_is_behind_and_its_ratio_stays_ours_over_theirs() -> None:
    row = _row(Unit.MILLISECONDS, respool=4.0, kafka=2.0)
    assert row.ratio() == pytest.approx(2.0)
    assert row.advantage() == pytest.approx(0.5)
    assert row.verdict is Verdict.KAFKA_AHEAD


def test_what_differs_by_less_than_rounds_do_is_even() -> None:
    assert _row(Unit.SECONDS, respool=1.02, kafka=1.0).verdict is Verdict.EVEN
    assert _row(Unit.SECONDS, respool=1.05, kafka=1.0).verdict is Verdict.KAFKA_AHEAD


def test_without_kafka_there_is_no_ratio_and_no_verdict() -> None:
    row = Row(family="Others", name="produce", unit=Unit.SECONDS, samples={RESPOOL: [1.0]})
    assert row.ratio() is None
    assert row.verdict is None


def test_the_synced_figure_is_compared_beside_the_like_one() -> None:
    row = Row(
        family="Produce",
        name="base",
        unit=Unit.MESSAGES_PER_S,
        samples={RESPOOL: [4.0], KAFKA: [2.0], RESPOOL_SYNCED: [1.0]},
    )
    assert row.ratio(RESPOOL_SYNCED) == pytest.approx(0.5)
    assert row.verdict is Verdict.RESPOOL_AHEAD


def test_a_ratio_is_of_medians() -> None:
    row = Row(
        family="Produce",
        name="base",
        unit=Unit.MESSAGES_PER_S,
        samples={RESPOOL: [1.0, 6.0, 900.0], KAFKA: [3.0, 3.0, 2.0]},
    )
    assert row.ratio() == pytest.approx(2.0)
