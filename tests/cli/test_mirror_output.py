"""What the line says that a mirror prints at each interval."""

import pytest

from respool.cli.mirror_output import MirrorOutput
from respool.mirror.partition_copy import PartitionCopy
from respool.mirror.progress import MirrorStatus, topic_progress


def line(
    capsys: pytest.CaptureFixture[str], *copies: PartitionCopy, groups: int | None = None
) -> str:
    status = MirrorStatus(
        bytes_copied=0, offsets_copied=0, topics=topic_progress(copies), group_count=groups
    )
    MirrorOutput(as_json=False, clock=lambda: 1.0).print_status(status)
    return capsys.readouterr().err.strip()


def begun(topic: str, number: int = 0) -> PartitionCopy:
    return PartitionCopy(place=(topic, number))


def copying(topic: str) -> PartitionCopy:
    copy = begun(topic)
    copy.begin(position=0, epoch=0)
    return copy


def test_at_the_start_it_says_what_it_is_looking_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert line(capsys, *(begun("rides", number) for number in range(6))) == (
        "1 topic, 6 partitions: 0 offsets copied, 0 B/s, at least 0 behind; "
        "looking up the end of the copy of 1 topic"
    )


def test_what_failed_and_is_tried_again_is_told_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = copying("fares")
    failed.seek_again("the source: fares/0 has no leader", 1.0)
    said = line(capsys, copying("rides"), failed)
    assert said.endswith("behind; retrying 1 topic (the source: fares/0 has no leader)")


def test_what_stopped_is_counted_and_what_is_copied_needs_no_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped = copying("fares")
    stopped.stop("it was promoted")
    assert line(capsys, copying("rides"), stopped).endswith("0 behind; 1 topic stopped")
    assert line(capsys, copying("rides")).endswith("0 behind")


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 groups"), (1, "1 group"), (2, "2 groups")], ids=str
)
def test_of_how_many_groups_the_offsets_are_copied_is_told(
    capsys: pytest.CaptureFixture[str], count: int, said: str
) -> None:
    assert line(capsys, copying("rides"), groups=count).endswith(f"behind, offsets of {said}")
