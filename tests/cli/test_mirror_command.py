"""How `respool mirror` chooses its clusters, before it copies anything."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import Run
from respool.cli import output
from respool.cli.connection_options import CONFIG_VARIABLE
from respool.cli.exit_codes import ExitCode
from respool.cli.mirror import both_clusters
from respool.client.kafka.bootstrap import ENVIRONMENT
from respool.client.kafka.cluster import Cluster
from respool.mirror import clusters
from respool.testing import Broker

TIMEOUTS = "request.timeout.ms=61000\nsocket.connection.setup.timeout.ms=7000\n"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENVIRONMENT, CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("option", "config_option", "other"),
    [("--to", "--client-config", "--from"), ("--from", "--from-client-config", "--to")],
)
def test_a_file_without_an_address_is_no_address(
    run: Run, tmp_path: Path, option: str, config_option: str, other: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(TIMEOUTS)
    for command in ((), ("status",)):
        ended = run(
            "mirror", *command, other, "10.0.0.1:9092", config_option, str(file), "--topics", "a"
        )  # fmt: skip
        assert ended.code == ExitCode.USAGE
        assert f"{option} is missing, and {config_option} {file} has no bootstrap.servers" in (
            " ".join(ended.err.split())
        )


def test_the_file_of_the_variable_has_the_targets_address_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--to was said to be missing, although --client-config with the same file was enough."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=b:1\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    assert both_clusters(source="a:1").target.bootstrap == "b:1"
    assert both_clusters(source="a:1", target="c:1").target.bootstrap == "c:1"
    # It is about the target alone.
    ended = run("mirror", "status", "--to", "b:1", "--topics", "a")
    assert "--from is missing;" in ended.err.replace("\n", ";")
    file.write_text(TIMEOUTS)
    ended = run("mirror", "status", "--from", "a:1", "--topics", "a")
    assert f"--to is missing, and {CONFIG_VARIABLE} {file} has no bootstrap.servers" in (
        " ".join(ended.err.split())
    )


def test_an_address_option_precedes_a_file_also_where_a_variable_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "a:1")
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=b:1\n")
    found = both_clusters(source="a:1", target="c:1", from_client_config=file)
    assert (found.source.bootstrap, found.target.bootstrap) == ("a:1", "c:1")
    found = both_clusters(source="c:1", target="a:1", client_config=file)
    assert (found.source.bootstrap, found.target.bootstrap) == ("c:1", "a:1")


def test_timeouts_of_the_files_replace_the_mirrors_own_and_its_client_id_stays(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []

    class Recorded(Cluster):
        def __init__(self, *addresses: Any, **settings: Any) -> None:
            made.append(settings)
            super().__init__(*addresses, **settings)

    monkeypatch.setattr(clusters, "Cluster", Recorded)
    with Broker(topics={"rides": 1}) as source, Broker() as target:
        files = [tmp_path / "source.properties", tmp_path / "target.properties"]
        files[0].write_text(f"bootstrap.servers={source.bootstrap}\n{TIMEOUTS}client.id=app\n")
        files[1].write_text(f"bootstrap.servers={target.bootstrap}\ndefault.api.timeout.ms=8000\n")
        both = ("--from-client-config", str(files[0]), "--client-config", str(files[1]))
        mirrored = run("mirror", *both, "--topics", "rides", "--once")
        assert mirrored.code == 0, mirrored.err
        assert f"client.id of {files[0]} is not used" in " ".join(mirrored.err.split())
        assert run("mirror", "status", *both).code == 0
        for at_source, at_target in (made[:2], made[2:]):
            assert at_source["client_id"] == at_target["client_id"] == "respool-mirror"
            assert (at_source["request_timeout_ms"], at_source["retry_ms"]) == (61_000, 10_000)
            assert at_source["connect_timeout_ms"] == 7_000
            assert (at_target["request_timeout_ms"], at_target["retry_ms"]) == (10_000, 8_000)
        made.clear()
        files[1].write_text(f"client.id=app\nbootstrap.servers={target.bootstrap}\n{TIMEOUTS}")
        promoted = run("mirror", "promote", "rides", "--client-config", str(files[1]))
        assert promoted.code == 0, promoted.err
        assert [(one["client_id"], one["request_timeout_ms"]) for one in made] == [("app", 61_000)]


def test_a_promotion_asks_on_a_terminal_and_nowhere_else(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(question: str, **_: object) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("typer.confirm", refuse)
    with Broker() as broker:
        at = ("--to", broker.bootstrap)
        run(
            "topic", "create", "rides", "--set", "respool.mirror=true", "--broker", broker.bootstrap
        )

        def is_mirror() -> bool:
            (topic,) = json.loads(
                run("topic", "describe", "rides", "--json", "--broker", broker.bootstrap).out
            )["topics"]
            return {"name": "respool.mirror", "value": "true", "source": "topic"} in topic[
                "settings"
            ]

        monkeypatch.setattr(output, "can_ask", lambda: True)
        ended = run("mirror", "promote", "rides", *at)
        assert (ended.code, len(asked), is_mirror()) == (ExitCode.FAILED, 1, True)
        assert "Mirrors will no longer write to rides" in asked[0]
        assert run("mirror", "promote", "rides", "--yes", *at).code == 0
        assert (len(asked), is_mirror()) == (1, False)
        monkeypatch.setattr(output, "can_ask", lambda: False)
        assert run("mirror", "promote", "rides", *at).code == 0
    assert len(asked) == 1
