"""Which offsets of a group are set at the target."""

import re

from respool.cli.kafka_groups import Committed
from respool.cli.mirror_groups import due_moves
from respool.cli.mirror_topics import Wanted

RIDES, FARES = ("rides", 0), ("fares", 0)


def at(offset: int) -> Committed:
    return Committed(offset=offset, metadata="m")


def test_what_was_read_is_copied_with_its_note() -> None:
    assert due_moves({RIDES: at(5)}, {}, {RIDES: 9}) == {RIDES: at(5)}


def test_nothing_is_copied_beyond_what_the_copy_has() -> None:
    assert due_moves({RIDES: at(12)}, {}, {RIDES: 9}) == {RIDES: at(9)}


def test_nothing_goes_back_or_stays_where_it_is() -> None:
    assert due_moves({RIDES: at(5)}, {RIDES: at(5)}, {RIDES: 9}) == {}
    assert due_moves({RIDES: at(5)}, {RIDES: at(7)}, {RIDES: 9}) == {}
    assert due_moves({RIDES: at(5)}, {RIDES: at(4)}, {RIDES: 9}) == {RIDES: at(5)}


def test_offsets_of_topics_that_are_not_mirrored_stay_away() -> None:
    assert due_moves({RIDES: at(5), FARES: at(1)}, {}, {FARES: 3}) == {FARES: at(1)}


def test_topics_are_chosen_by_their_whole_names_and_never_the_brokers_own() -> None:
    wanted = Wanted((re.compile("rides.*"), re.compile("fares")), (re.compile(".*-test"),))
    names = ["rides", "rides-1", "rides-test", "my-rides", "fares", "fares-2"]
    assert wanted.of(names) == ["fares", "rides", "rides-1"]
    everything = Wanted((re.compile(".*"),))
    assert everything.of(["__consumer_offsets", "__anything", "rides"]) == ["rides"]
