"""Commits by several writers with lost answers, against a model: each range is in the table once."""

from hypothesis import given
from hypothesis import strategies as st

from respool.tables.planning.commit_decision import CommitVerdict, decide
from respool.tables.planning.positions import TopicRange


def test_a_token_that_is_found_settles_all_partitions() -> None:
    ranges = {number: TopicRange(partition=number, begin=0, end=5) for number in (0, 1)}
    found = decide(ranges, found={0: 9, 1: 5}, is_token_found=True)
    assert found == {0: CommitVerdict.DONE, 1: CommitVerdict.DONE}


def test_without_the_token_only_an_unmoved_position_is_tried_again() -> None:
    ranges = {number: TopicRange(partition=number, begin=2, end=5) for number in range(4)}
    found = decide(ranges, found={0: 2, 1: 5, 2: 3}, is_token_found=False)
    # Partition 3 has no position yet: nobody has written it.
    assert found == {
        0: CommitVerdict.AGAIN,
        1: CommitVerdict.DISCARD,
        2: CommitVerdict.DISCARD,
        3: CommitVerdict.AGAIN,
    }


# For each attempt: which writer, and whether its commit arrives and is answered, arrives without an answer, or gets
# lost.
_attempts = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["ok", "no answer", "lost"])), max_size=30
)


@given(_attempts)
def test_writers_that_decide_so_write_every_offset_once(attempts: list[tuple[int, str]]) -> None:
    table: list[int] = []
    position, version, tokens = 0, 0, set()
    # Writer -> (version it loaded, its range, its token).
    loaded: dict[int, tuple[int, TopicRange, object]] = {}
    for writer, fate in attempts:
        if writer not in loaded:
            wanted = TopicRange(partition=0, begin=position, end=position + 2)
            loaded[writer] = version, wanted, object()
            continue
        base, wanted, token = loaded[writer]
        if fate != "lost" and base == version:
            table += range(wanted.begin, wanted.end)
            position, version = wanted.end, version + 1
            tokens.add(token)
            if fate == "ok":
                del loaded[writer]
                continue
        verdict = decide({0: wanted}, found={0: position}, is_token_found=token in tokens)[0]
        if verdict is CommitVerdict.AGAIN:
            loaded[writer] = version, wanted, token
        else:
            del loaded[writer]
    assert table == list(range(position))
