"""Retention over both tiers."""

from archive.archived_log import KEYS, segment_entry
from respool.archive.manifest import Manifest
from respool.archive.two_tier_retention import expired_end
from respool.model.ids import Offset
from respool.model.topic_config import CleanupPolicies, TopicConfig

ALL = Offset(2**62)


def archived(*times: int) -> Manifest:
    manifest = Manifest(KEYS)
    for at, time in enumerate(times):
        entry = segment_entry(at * 10, at * 10 + 10, number=at, largest_timestamp=time)
        manifest.apply(at + 1, entry)
    return manifest


def end(
    manifest: Manifest, config: TopicConfig, *, beyond: int = 0, kept_from: Offset = ALL
) -> Offset | None:
    return expired_end(
        manifest, config, now_ms=10_000, local_bytes_beyond=beyond, kept_from=kept_from
    )


def test_archived_segments_expire_by_their_largest_timestamp() -> None:
    config = TopicConfig(retention_ms=1_000)
    assert end(archived(8_000, 8_999, 9_000), config) == 20
    assert end(archived(9_000), config) is None
    # A time in the future keeps all behind it.
    assert end(archived(8_000, 99_000, 8_000), config) == 10
    assert end(archived(-1, 8_000), config) is None


def test_what_lies_on_both_tiers_counts_once() -> None:
    config = TopicConfig(retention_ms=-1, retention_bytes=2_500)
    assert end(archived(1, 1, 1), config) is None
    assert end(archived(1, 1, 1), config, beyond=499) is None
    assert end(archived(1, 1, 1), config, beyond=500) == 10
    assert end(archived(1, 1, 1), config, beyond=1_500) == 20


def test_records_that_something_keeps_do_not_expire() -> None:
    config = TopicConfig(retention_ms=1_000)
    assert end(archived(1, 1, 1), config, kept_from=Offset(25)) == 20
    assert end(archived(1, 1, 1), config, kept_from=Offset(9)) is None


def test_without_a_policy_nothing_expires() -> None:
    config = TopicConfig(retention_ms=0, cleanup_policy=CleanupPolicies())
    assert end(archived(1, 1), config) is None
