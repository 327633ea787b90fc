import pytest

from respool.model.topic_config import Flush
from respool.replication.restart import may_stay_in_sync


@pytest.mark.parametrize("flush", Flush)
def test_after_a_clean_stop_a_replica_has_everything(flush: Flush) -> None:
    assert may_stay_in_sync(flush, was_stopped_cleanly=True)


def test_after_a_crash_only_synced_replicas_have_what_they_said() -> None:
    assert may_stay_in_sync(Flush.ALWAYS, was_stopped_cleanly=False)
    assert not may_stay_in_sync(Flush.INTERVAL, was_stopped_cleanly=False)
    assert not may_stay_in_sync(Flush.OS, was_stopped_cleanly=False)
