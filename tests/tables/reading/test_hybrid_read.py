"""Reads of a table and the log behind it: each record once, also while the table moves."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow.compute as pc
import pytest

from respool.tables.errors import ForeignTable, PositionBeyondLog, RecordsDeleted
from respool.tables.formats.table_log import TopicIdentity
from respool.tables.planning.positions import LogEnds
from respool.tables.reading.hybrid_plan import plan_hybrid
from respool.tables.reading.hybrid_read import HybridRead
from respool.tables.upkeep.joining_files import compact
from respool.tables.values.decoding import make_decoder
from tables.making import MemoryTopic, make_table, make_writer, numbers, open_log, settings_of


@pytest.fixture(params=["delta", "iceberg"])
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryTopic:
    topic = MemoryTopic(settings_of(tmp_path, request.param), {0: [], 1: []})
    make_table(topic)
    return topic


def offsets(read: HybridRead) -> list[tuple[int, int]]:
    found = read.table()
    return list(zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True))


def everything(topic: MemoryTopic) -> list[tuple[int, int]]:
    return [
        (partition, offset)
        for partition, values in sorted(topic.values.items())
        for offset, value in enumerate(values)
        if value is not None
    ]


def test_a_read_is_the_whole_log_at_every_moment(topic: MemoryTopic) -> None:
    """At random moments records arrive, the table advances, files are joined: a read never lacks or doubles a row."""
    chance = Random(7)
    random = numbers()
    writer = make_writer(topic, new_random=random)
    for _moment in range(40):
        step = chance.random()
        if step < 0.4:
            partition = chance.randrange(2)
            topic.values[partition] += [chance.choice([b"a", None]) for _ in range(3)]
        elif step < 0.7:
            writer.round()
        elif step < 0.8:
            compact(open_log(topic), new_random=random, files_min=2)
        assert offsets(HybridRead(topic)) == everything(topic)


def test_a_table_that_advances_between_the_version_and_the_ends_doubles_nothing(
    topic: MemoryTopic,
) -> None:
    topic.values = {0: [b"a", b"b"], 1: [b"c"]}
    calls: Iterator[int] = iter(range(10))

    class RacingTopic(MemoryTopic):
        def ends(self) -> dict[int, LogEnds]:
            # The second time is that after the version was loaded.
            if next(calls) == 1:
                topic.values[0] += [b"new", b"new"]
                make_writer(topic).round()
            return dict(super().ends())

    racing = RacingTopic(topic.settings_now, topic.values)
    read = HybridRead(racing)
    assert offsets(read) == everything(topic) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]


def test_asking_the_ends_first_would_double_or_lose(topic: MemoryTopic) -> None:
    """The planted bug: with ends from before the version, a position may be beyond them."""
    topic.values = {0: [b"a"], 1: []}
    early = topic.ends()
    topic.values[0] += [b"b"]
    make_writer(topic).round()
    with pytest.raises(PositionBeyondLog):
        plan_hybrid("rides", open_log(topic).load().positions, early)


def test_the_table_has_what_the_log_has_deleted(topic: MemoryTopic) -> None:
    topic.values = {0: [b"a"] * 6, 1: []}
    make_writer(topic).round()
    topic.values[0] += [b"b"] * 2
    topic.starts[0] = 5
    assert len(offsets(HybridRead(topic))) == 8
    assert offsets(HybridRead(topic, since={0: 4, 1: 0}, until={0: 7})) == [(0, 4), (0, 5), (0, 6)]
    topic.starts[0] = 7
    with pytest.raises(RecordsDeleted, match="offsets 6 to 6 of rides/0 are neither"):
        HybridRead(topic)
    # What the hole does not touch can be read.
    assert offsets(HybridRead(topic, since={0: 7})) == [(0, 7)]
    assert offsets(HybridRead(topic, until={0: 3})) == [(0, 0), (0, 1), (0, 2)]


def test_an_older_version_is_read_as_it_was(topic: MemoryTopic) -> None:
    topic.values = {0: [b"a", b"b"], 1: []}
    make_writer(topic).round()
    then = open_log(topic).load().version
    topic.values[0] += [b"c"]
    make_writer(topic).round()
    assert offsets(HybridRead(topic, version=then)) == [(0, 0), (0, 1)]


def test_filters_apply_to_both_parts(topic: MemoryTopic) -> None:
    topic.values = {0: [b"a", b"b", b"a"], 1: [b"a"]}
    make_writer(topic).round()
    topic.values[1] += [b"b", b"a"]
    found = HybridRead(topic).table(["_offset"], where=pc.field("_value") == b"a")
    assert found.to_pydict() == {"_offset": [0, 2, 0, 2]}


def test_the_tail_has_the_columns_of_the_table_and_its_treatment_of_bad_records(
    tmp_path: Path,
) -> None:
    topic = MemoryTopic(settings_of(tmp_path, schema="infer"), {0: [b'{"id":1}', b"null"], 1: []})
    make_table(topic)
    decoder = make_decoder(topic.settings_now.respool_table_schema, topic="rides")
    assert decoder is not None
    make_writer(topic, decoder=decoder).round()
    decoder.close()
    topic.values[1] += [b'{"id":2,"new":true}', b"null", b'{"id":"x"}']
    rows = HybridRead(topic).table(["_partition", "_offset", "id", "_rest"]).to_pylist()
    assert [tuple(one.values()) for one in rows] == [
        (0, 0, 1, None),
        (1, 0, 2, '{"new":true}'),
        (1, 2, None, '{"id":"x"}'),
    ]


def test_a_table_of_another_topic_is_refused(topic: MemoryTopic) -> None:
    topic.topic = TopicIdentity(name="rides", id="another")
    with pytest.raises(ForeignTable):
        HybridRead(topic)
