from coordination.group_world import subscription
from respool.coordination.groups.consumer_protocol import subscribed_topics


def test_topics_of_all_members_are_read() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "c")]) == frozenset("abc")
    assert subscribed_topics([]) == frozenset()


def test_later_versions_are_read_by_what_they_have_in_common() -> None:
    owned_and_more = b"\0\0\0\0 and whatever comes"
    assert subscribed_topics([b"\0\3" + subscription("a")[2:] + owned_and_more]) == frozenset("a")


def test_nothing_is_known_when_one_cannot_be_read() -> None:
    for unreadable in (b"", b"\0\0", subscription("abc")[:-6], b"\0\0\x7f\xff\xff\xff"):
        assert subscribed_topics([subscription("a"), unreadable]) is None
