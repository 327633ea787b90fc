import io
import json
from pathlib import Path

import pytest

from cli.running import Run
from respool.cli.messages.message_format import LineReader, NewMessage, read_lines
from respool.model.json_bytes import BadInput
from respool.model.operator_errors import UsageError
from support.quick_broker import quick_broker


def test_a_line_is_a_value() -> None:
    assert LineReader().read(b"a:b") == NewMessage(key=None, value=b"a:b")
    assert LineReader().read(b"") == NewMessage(key=None, value=b"")


def test_a_separator_splits_key_and_value_once() -> None:
    reader = LineReader(key_separator=":")
    assert reader.read(b"a:b:c") == NewMessage(key=b"a", value=b"b:c")
    assert reader.read(b":") == NewMessage(key=b"", value=b"")
    with pytest.raises(BadInput, match="no ':' between key and value"):
        reader.read(b"abc")


def test_the_null_marker_makes_nulls_of_keys_and_values() -> None:
    reader = LineReader(key_separator=":", null_marker="NULL")
    assert reader.read(b"a:NULL") == NewMessage(key=b"a", value=None)
    assert reader.read(b"NULL:NULLS") == NewMessage(key=None, value=b"NULLS")


def test_key_headers_and_partition_go_with_every_line() -> None:
    reader = LineReader(key="k", headers=(("a", b"1"),), partition=2)
    assert reader.read(b"v") == NewMessage(
        key=b"k", value=b"v", headers=(("a", b"1"),), partition=2
    )


def test_a_json_line_says_key_partition_and_time_itself_and_options_fill_in() -> None:
    reader = LineReader(json_lines=True, keep_partition=True, key="k", headers=(("b", b"2"),))
    line = b'{"value": "v", "partition": 3, "timestamp": 5, "headers": {"a": "1"}}'
    assert reader.read(line) == NewMessage(
        key=b"k", value=b"v", headers=(("a", b"1"), ("b", b"2")), timestamp_ms=5, partition=3
    )
    assert reader.read(b'{"key": "own"}').key == b"own"


def test_the_partition_a_json_line_names_is_kept_only_when_asked_for() -> None:
    line = b'{"value": "v", "partition": 3}'
    assert LineReader(json_lines=True).read(line).partition is None
    assert LineReader(json_lines=True, keep_partition=True).read(line).partition == 3


@pytest.mark.parametrize(
    ("key", "separator", "json_lines"),
    [("k", ":", False), (None, "", False), (None, ":", True)],
)
def test_options_that_contradict_each_other_are_refused(
    key: str | None, separator: str | None, json_lines: bool
) -> None:
    with pytest.raises(UsageError):
        LineReader(key=key, key_separator=separator, json_lines=json_lines)


def test_lines_keep_their_bytes_and_the_last_may_lack_its_newline() -> None:
    assert list(read_lines(io.BytesIO(b"a\r\n\n\xff\x00\nend"))) == [
        b"a\r",
        b"",
        b"\xff\x00",
        b"end",
    ]
    assert list(read_lines(io.BytesIO(b"a\n"))) == [b"a"]
    assert list(read_lines(io.BytesIO(b""))) == []


def test_a_line_without_an_end_is_not_read_into_memory() -> None:
    lines = read_lines(io.BytesIO(b"ok\n" + b"x" * 100), line_bytes_max=10)
    assert next(lines) == b"ok"
    with pytest.raises(BadInput, match="longer than 10 bytes"):
        next(lines)


def test_every_line_of_standard_input_becomes_a_message(run: Run, mock_broker: str) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(500))
    ended = run("produce", "piped", "--broker", mock_broker, stdin=lines)
    assert (ended.code, ended.out) == (0, "")
    assert "500 messages" in ended.err
    assert "by partition" in ended.err
    read = run("consume", "piped", "--broker", mock_broker)
    assert sorted(read.out.encode().splitlines()) == sorted(lines.splitlines())


def test_the_summary_is_json_for_programs(run: Run, mock_broker: str) -> None:
    ended = run("produce", "counted", "-m", "a", "-m", "bc", "-p", "1", "--json", "-b", mock_broker)
    summary = json.loads(ended.out)
    assert summary["messages"] == 2
    assert summary["partitions"] == [{"partition": 1, "messages": 2}]
    assert summary["bytes"] == 3
    assert summary["failed"] == []


def test_keys_headers_nulls_and_compression_arrive(run: Run, mock_broker: str) -> None:
    ended = run(
        "produce", "rich", "-b", mock_broker, "--key-separator", "\\t", "--header", "a=1", "-H", "a=2",
        "--null-marker", "-", "--compression", "lz4", "--acks", "1", "--partition", "0",
        stdin=b"k1\tv1\nk2\t-\n",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    read = run("consume", "rich", "-b", mock_broker, "--json")
    first, second = map(json.loads, read.out.splitlines())
    assert (first["key"], first["value"], first["headers"]) == (
        "k1",
        "v1",
        [["a", "1"], ["a", "2"]],
    )
    assert (second["key"], second["value"]) == ("k2", None)


def test_a_bad_line_stops_it_and_what_came_before_is_sent(run: Run, mock_broker: str) -> None:
    ended = run(
        "produce", "half", "-b", mock_broker, "--key-separator", ":", stdin=b"a:1\nb:2\nc3\nd:4\n"
    )
    assert ended.code == 1
    assert "line 3: there is no ':' between key and value" in ended.err
    assert "2 messages" in ended.err
    read = run("consume", "half", "-b", mock_broker, "--format", "{key}{value}")
    assert sorted(read.out.split()) == ["a1", "b2"]


def test_a_topic_written_as_json_lines_is_copied_whole(run: Run, mock_broker: str) -> None:
    run(
        "produce",
        "original",
        "-b",
        mock_broker,
        "-H",
        "h=\x01",
        "-k",
        "ü",
        stdin=b"\xff\xfe\n\nplain\n",
    )
    lines = run("consume", "original", "-b", mock_broker, "--json").out
    ended = run("produce", "copy", "-b", mock_broker, "--json-lines", stdin=lines.encode())
    assert ended.code == 0, ended.err
    copied = run("consume", "copy", "-b", mock_broker, "--json").out
    assert copied == lines.replace('"original"', '"copy"')
    assert len(lines.splitlines()) == 3


def test_a_file_is_read_line_by_line(run: Run, mock_broker: str, tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_bytes(b"one\ntwo")
    ended = run("produce", "filed", "-b", mock_broker, "--file", str(source), "-p", "2")
    assert ended.code == 0
    read = run("consume", "filed", "-b", mock_broker)
    assert read.out == "one\ntwo\n"


def test_a_partition_that_is_not_there_is_not_found(run: Run, mock_broker: str) -> None:
    run("produce", "narrow", "-b", mock_broker, "-m", "x")
    ended = run("produce", "narrow", "-b", mock_broker, "-m", "x", "--partition", "9")
    assert ended.code == 3
    assert "its partitions are 0 to 3" in ended.err


def test_a_message_the_client_library_refuses_counts_as_failed(
    run: Run, mock_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.cli.messages.message_sender.MESSAGE_BYTES_MAX", 1000)
    ended = run("produce", "huge", "-b", mock_broker, "-m", "small", "-m", "x" * 2000)
    assert ended.code == 1
    assert "1 message (5 B)" in ended.err
    assert "1 message was not acknowledged: " in ended.err
    assert "MSG_SIZE_TOO_LARGE" in ended.err


def test_a_message_too_large_for_a_topic_that_is_not_there_yet_is_told_the_limit_and_the_remedy(
    run: Run,
) -> None:
    """Only the client library's words were told: the topic's settings had been asked for before it existed."""
    with quick_broker({"topic.max.message.bytes": 1_500_000}) as broker:
        ended = run("produce", "new", "-b", broker.bootstrap, stdin=b"x" * 2_000_000 + b"\n")
        assert ended.code == 1
        assert "new takes at most 1,500,000 bytes at once (1.4 MiB, max.message.bytes)" in ended.err
        remedy = "respool topic create new --set max.message.bytes="
        assert f"{remedy}BYTES (or alter, if it is there by now)" in ended.err
        words = (
            *remedy.removesuffix("max.message.bytes=").split()[1:],
            "max.message.bytes=3000000",
        )
        assert run(*words, "-b", broker.bootstrap).code == 0
        assert run("produce", "new", "-b", broker.bootstrap, stdin=b"x" * 2_000_000).code == 0


def test_messages_to_a_topic_that_is_not_there_yet_are_not_batched_beyond_its_limit(
    run: Run,
) -> None:
    lines = b"".join(b"message %d\n" % number for number in range(1_000))
    with quick_broker({"topic.max.message.bytes": 1_000}) as broker:
        assert run("produce", "new", "-b", broker.bootstrap, stdin=lines).code == 0


def test_a_missing_file_and_contradicting_options_are_told_before_anyone_is_asked(run: Run) -> None:
    # Nobody listens at port 1: had it tried to connect, the code would be 4.
    nobody = ("-b", "127.0.0.1:1")
    assert run("produce", "t", *nobody, "--file", "missing.txt").code == 3
    assert run("produce", "t", *nobody, "--file", "x", "-m", "y").code == 2
    assert run("produce", "t", *nobody, "--repartition").code == 2
    assert run("produce", "t", *nobody, "--keep-partition").code == 2
    lines = ("--json-lines", "--keep-partition")
    assert run("produce", "t", *nobody, *lines, "--repartition").code == 2
    assert run("produce", "t", *nobody, *lines, "--partition", "1").code == 2
    assert run("produce", "t", *nobody, "--acks", "2").code == 2
    assert run("produce", "t", *nobody, "--header", "novalue").code == 2
