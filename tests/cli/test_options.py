import pytest
import typer

from cli.running import Run
from respool.cli.options import (
    broker_number,
    parse_assignments,
    parse_names,
    parse_pairs,
    settings_in_plain_numbers,
    topics_and_partitions,
)
from respool.model.operator_errors import UsageError


def test_assignments_split_at_the_first_equals_sign() -> None:
    assert parse_assignments(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    assert parse_assignments(None) == {}


@pytest.mark.parametrize("pair", ["retention.ms", "=5", ""])
def test_what_is_no_assignment_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=VALUE"):
        parse_assignments([pair])


def test_one_setting_cannot_have_two_values() -> None:
    with pytest.raises(UsageError, match="given twice: '1' and '2'"):
        parse_assignments(["a=1", "a=2"])


@pytest.mark.parametrize("text", ["", "a,,b", "a,"])
def test_a_name_that_is_missing_among_others_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="separated by commas"):
        parse_names(text, option="--racks")
    assert parse_names("a, b", option="--racks") == ["a", "b"]


def test_headers_may_repeat_and_keep_their_order() -> None:
    assert parse_pairs(["a=1", "b=2", "a=3"], option="--header") == [
        ("a", "1"),
        ("b", "2"),
        ("a", "3"),
    ]


@pytest.mark.parametrize(
    ("pair", "sent"),
    [
        ("retention.ms=7d", "604800000"),
        ("retention.ms=1 hour", "3600000"),
        ("retention.ms=-1", "-1"),
        ("retention.ms=5000", "5000"),
        ("segment.bytes=64MiB", "67108864"),
        ("segment.bytes=64 MB", "64000000"),
        ("segment.bytes=1k", "1024"),
        ("segment.bytes=1kB", "1000"),
        ("segment.bytes=100b", "100"),
        ("segment.bytes=many", "many"),
        ("cleanup.policy=delete", "delete"),
    ],
)
def test_times_and_sizes_of_settings_may_have_units(pair: str, sent: str) -> None:
    assert list(settings_in_plain_numbers([pair]).values()) == [sent]


def test_list_of_durations_was_refused_in_plain_numbers_too() -> None:
    name = "respool.share.retry.delays.ms"
    for text in ("1000,10000,60000", "1s,10s,1m"):
        assert settings_in_plain_numbers([f"{name}={text}"]) == {name: "1000,10000,60000"}
    with pytest.raises(UsageError, match="soon"):
        settings_in_plain_numbers([f"{name}=1s,soon"])


def test_a_time_setting_that_is_no_time_is_refused_before_the_broker_is_asked() -> None:
    with pytest.raises(UsageError, match=r"retention\.ms"):
        settings_in_plain_numbers(["retention.ms=long"])


@pytest.mark.parametrize("text", ["three", "-1", "1.5", "٣", ""])
def test_what_is_no_brokers_number_is_told_in_words(run: Run, text: str) -> None:
    # Nobody listens at port 1: had it tried to connect, the code would be 4.
    ended = run("cluster", "drain", "--etcd", "127.0.0.1:1", "--", text)
    assert ended.code == 2
    assert "is not the number of a broker" in ended.err.replace("\n", " ")
    with pytest.raises(typer.BadParameter):
        broker_number(text)


def test_a_brokers_number_is_a_number() -> None:
    assert broker_number("12") == 12


def test_topics_may_name_partitions_and_be_repeated() -> None:
    def parsed(texts: list[str]) -> dict[str, list[int] | None]:
        return topics_and_partitions(texts, option="--topic")

    assert parsed(["rides", "fares:2,0", "fares:1"]) == {"rides": None, "fares": [0, 1, 2]}
    assert parsed(["fares:1", "fares"]) == {"fares": None}
    for wrong in ("", ":1", "rides:", "rides:a", "rides:1,"):
        with pytest.raises(UsageError, match="not TOPIC"):
            parsed([wrong])
