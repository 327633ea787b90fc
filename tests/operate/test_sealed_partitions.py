"""Which groups have still to read sealed partitions."""

from respool.operate.sealed_partitions import GroupPosition, groups_behind


def test_a_group_is_behind_until_it_has_committed_every_sealed_end() -> None:
    positions = [
        GroupPosition("nothing", {}),
        GroupPosition("some", {3: 10, 4: 4}),
        GroupPosition("all", {3: 10, 4: 5}),
        GroupPosition("more", {3: 11, 4: 99, 0: 0}),
    ]
    assert groups_behind(positions, {3: 10, 4: 5}) == ["nothing", "some"]
    assert groups_behind(positions, {3: 10}) == ["nothing"]


def test_nobody_is_behind_where_nothing_was_written() -> None:
    assert groups_behind([GroupPosition("nothing", {})], {}) == []


def test_a_group_that_also_reads_a_view_is_through_when_it_has_read_both() -> None:
    positions = [GroupPosition("both", {3: 10}), GroupPosition("both", {3: 2})]
    assert groups_behind(positions, {3: 10}) == ["both"]
