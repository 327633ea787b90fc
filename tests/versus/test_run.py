"""A run: a family that fails is named, the others go on with brokers started anew, and no Kafka is exit code 3."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from bench.broker_process import BrokerFailed
from bench.versus import __main__ as versus
from bench.versus.arena import Arena
from bench.versus.kafka_jars import KafkaJars, KafkaUnavailable
from bench.versus.results import Results
from bench.versus.sizes import QUICK
from rich.console import Console


@pytest.fixture
def arena() -> Arena:
    return Arena(
        jars=KafkaJars(folder=Path("jars"), version="4.3.1"),
        sizes=QUICK,
        results=Results(head={}),
        console=Console(file=StringIO()),
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What happens to brokers and families that are not really there, in order."""
    told: list[str] = []

    @contextmanager
    def started(_jars: KafkaJars) -> Iterator[str]:
        told.append("start")
        yield "brokers"

    def family(name: str) -> Callable[[Any, Any], None]:
        return lambda _arena, _contenders: told.append(name)

    def broken(_arena: object, _contenders: object) -> None:
        told.append("broken")
        raise BrokerFailed("it ended by itself")

    families = {"idle": family("idle"), "seek": broken, "topics": family("topics")}
    monkeypatch.setattr(versus, "started", started)
    monkeypatch.setattr(versus, "warm_up", lambda _arena, _contenders: told.append("warm-up"))
    monkeypatch.setattr(versus, "FAMILIES", families)
    monkeypatch.setattr(versus, "SO_FAR", tmp_path / "so-far.json")
    return told


def test_after_a_failure_the_others_go_on_with_brokers_started_anew(
    arena: Arena, told: list[str]
) -> None:
    failed = versus._run_all(arena, ["idle", "seek", "topics"])
    assert failed == ["seek"]
    assert told == ["start", "idle", "warm-up", "broken", "start", "warm-up", "topics"]
    assert arena.results.notes == {"seek": ["not all was measured: it ended by itself"]}


def test_brokers_that_do_not_start_end_the_run_with_all_that_is_left_named(
    arena: Arena, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def refused(_jars: KafkaJars) -> Iterator[str]:
        raise BrokerFailed("no port")
        yield ""

    monkeypatch.setattr(versus, "started", refused)
    assert versus._run_all(arena, ["idle", "topics"]) == ["idle", "topics"]
    assert told == []


def test_figures_so_far_are_kept_after_every_family(arena: Arena, told: list[str]) -> None:
    versus._run_all(arena, ["idle"])
    assert Results.read(versus.SO_FAR).head == {}


def test_without_kafka_the_exit_code_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(**_: object) -> KafkaJars:
        raise KafkaUnavailable("Maven Central cannot be reached")

    monkeypatch.setattr(versus, "find_kafka", unavailable)
    monkeypatch.setattr(sys, "argv", ["bench.versus", "--quick"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        versus.main()
    assert ended.value.code == versus.EXIT_NO_KAFKA
