"""What applies to a share group without settings of its own: Kafka's defaults."""

from respool.model.share.share_errors import InvalidRecordState, ShareSessionNotFound
from respool.model.share.share_settings import ShareGroupSettings


def test_defaults_are_those_of_kafka() -> None:
    settings = ShareGroupSettings()
    assert settings.lock_duration_ms == 30_000
    assert settings.delivery_count_limit == 5
    assert settings.record_locks_max == 2_000
    assert settings.offset_reset.kind == "latest"
    assert not settings.read_committed
    assert settings.retry_delays_ms == ()


def test_a_lost_session_is_worth_another_attempt_and_a_lost_record_is_not() -> None:
    assert ShareSessionNotFound.retriable
    assert not InvalidRecordState.retriable
