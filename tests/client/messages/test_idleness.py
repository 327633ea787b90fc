"""When a loop over messages ends because none come."""

from respool.client.messages.idleness import WAIT_SECONDS, Idleness


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.has_joined = True

    def idleness(self, idle_s: float | None) -> Idleness:
        return Idleness(idle_s, has_joined=lambda: self.has_joined, now=lambda: self.now_s)


def test_it_is_over_when_nothing_has_come_for_so_long() -> None:
    clock = Clock()
    idleness = clock.idleness(5)
    clock.now_s = 4.9
    assert not idleness.is_over()
    idleness.on_message()
    clock.now_s = 9.8
    assert not idleness.is_over()
    clock.now_s = 9.9
    assert idleness.is_over()


def test_joining_the_group_is_no_idleness() -> None:
    clock = Clock()
    clock.has_joined = False
    idleness = clock.idleness(1)
    clock.now_s = 3
    assert not idleness.is_over()
    clock.has_joined = True
    clock.now_s = 3.9
    assert not idleness.is_over()
    clock.now_s = 4
    assert idleness.is_over()


def test_without_an_end_it_is_never_over() -> None:
    clock = Clock()
    idleness = clock.idleness(None)
    clock.now_s = 1e9
    assert not idleness.is_over()
    assert idleness.wait_s == WAIT_SECONDS


def test_one_wait_is_no_longer_than_the_whole() -> None:
    assert Clock().idleness(0.2).wait_s == 0.2
