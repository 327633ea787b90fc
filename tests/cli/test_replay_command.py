"""An invalid command line is reported before a connection is made."""

from pathlib import Path

import pytest

from cli.running import Run
from respool.cli.replays.replay import parse_headers, parse_keys
from respool.model.operator_errors import UsageError

NOWHERE = "--broker=127.0.0.1:1"
SPAN = ["--from", "1 hour ago"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rides", *SPAN], "either --into TOPIC2 or --group NEW"),
        (["rides", *SPAN, "--into", "a", "--group", "b"], "either --into TOPIC2 or --group NEW"),
        (["rides", "--into", "a"], "--from is missing"),
        ([*SPAN, "--into", "a"], "the topic to read is missing"),
        (["rides", "--from", "soon", "--into", "a"], "--from: 'soon' is not a time"),
        (["rides", "--from", "now", "--to", "1 hour ago", "--into", "a"], "must be before --to"),
        (["rides", *SPAN, "--into", "a", "--speed", "warp"], "not a speed"),
        (["rides", *SPAN, "--into", "a", "--rate", "lots"], "not a rate"),
        (["rides", *SPAN, "--into", "a", "--compression", "rar"], "is not one of none, gzip"),
        (["rides", *SPAN, "--into", "a", "--keys", ","], "no key is given"),
        (["rides", *SPAN, "--group", "g", "--speed", "1x"], "--speed is for --into"),
        (["rides", *SPAN, "--group", "g", "--keys", "a"], "--keys is for --into"),
        (["rides", *SPAN, "--group", "g", "--header", "a=b"], "--header is for --into"),
        (["rides", *SPAN, "--into", "a", "--header", "type"], "--header 'type' is not NAME=VALUE"),
        (["rides", *SPAN, "--into", "a", "--header", "=b"], "is not NAME=VALUE"),
        # It was resumed, and copied.
        (["--resume", "aa", "--dry-run"], "contradicts --dry-run"),
        (["--resume", "aa", "rides"], "replaces all arguments that describe"),
        (["--resume", "aa", "--to", "1 hour ago"], "replaces all arguments that describe"),
    ],
)
def test_a_wrong_command_line_is_told(run: Run, arguments: list[str], said: str) -> None:
    ended = run("replay", *arguments, NOWHERE)
    assert ended.code == 2
    assert said in ended.err


def test_a_right_one_gets_as_far_as_the_broker(run: Run) -> None:
    for arguments in (
        ["rides", *SPAN, "--into", "a"],
        ["run", "list", *SPAN, "--group", "a"],
        ["list"],
    ):
        ended = run("replay", *arguments, NOWHERE)
        assert (ended.code, "no broker at" in ended.err) == (4, True), ended.err


def test_help_tells_of_both_commands_and_the_short_form(run: Run) -> None:
    ended = run("replay", "--help")
    assert ended.code == 0
    assert "respool replay TOPIC … is short for" in " ".join(ended.out.split())
    assert "List all resets and replays" in " ".join(ended.out.split())
    assert "--resume" in run("replay", "run", "--help").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["billing"], "give exactly one of"),
        (["billing", "--to-earliest", "--shift-by", "1"], "give exactly one of"),
        (["billing", "--to-time", "soon"], "--to-time: 'soon' is not a time"),
        (["billing", "--to-earliest", "--topic", "rides:x"], "not TOPIC"),
    ],
)
def test_a_wrong_reset_is_told(run: Run, arguments: list[str], said: str) -> None:
    ended = run("group", "reset", *arguments, NOWHERE)
    assert ended.code == 2
    assert said in ended.err


def test_keys_come_with_commas_or_from_a_file(tmp_path: Path) -> None:
    assert parse_keys(None, None) is None
    assert parse_keys(["a,b", "c"], None) == frozenset({b"a", b"b", b"c"})
    listed = tmp_path / "keys"
    listed.write_bytes(b"a\r\nb\xff\n\nc,d")
    assert parse_keys(None, listed) == frozenset({b"a", b"b\xff", b"c,d"})
    with pytest.raises(UsageError, match="only one of"):
        parse_keys(["a"], listed)
    listed.write_bytes(b"\n")
    with pytest.raises(UsageError, match="no key is given"):
        parse_keys(None, listed)


def test_headers_of_one_name_may_have_any_of_their_values() -> None:
    assert parse_headers(None) is None
    assert parse_headers(["a=1", "b=x=y", "a=", "a=1"]) == {
        "a": frozenset({b"1", b""}),
        "b": frozenset({b"x=y"}),
    }
