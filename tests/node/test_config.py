"""Settings from file, environment and command line: who wins, what is understood, and how errors are told."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.model.errors import SettingsError
from respool.model.settings import SETTINGS, Settings
from respool.model.topic_config import CONFIG_RULES
from respool.node.config import load_settings, unknown_variables, write_example

LONG = os.environ.get("RESPOOL_FUZZ") == "long"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "respool.toml"


def load(
    file: Path | None = None,
    content: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    if file is not None and content is not None:
        file.write_text(content)
    return load_settings(file=file, environ=environ or {}, flags=flags or {})


# -- who wins ----------------------------------------------------------------------------------------------------------


def test_nothing_given_is_all_defaults() -> None:
    assert load() == Settings()


def test_the_environment_wins_over_the_file_and_flags_over_both(file: Path) -> None:
    content = """
        num_partitions = 1
        io_threads = 1
        broker_id = 1
        [topic]
        "retention.ms" = 1
        "segment.ms" = 1
        "retention.bytes" = 1
    """
    loaded = load(
        file,
        content,
        environ={
            "RESPOOL_NUM_PARTITIONS": "2",
            "RESPOOL_IO_THREADS": "2",
            "RESPOOL_TOPIC_SEGMENT_MS": "2",
            "RESPOOL_TOPIC_RETENTION_BYTES": "2",
        },
        flags={"num_partitions": 3, "topic.retention.bytes": "3"},
    )
    assert (loaded.broker_id, loaded.storage.io_threads, loaded.topics.num_partitions) == (1, 2, 3)
    assert loaded.topics.overrides == {
        "retention.ms": "1",
        "segment.ms": "2",
        "retention.bytes": "3",
    }
    assert loaded.topic_defaults.retention_bytes == 3


def test_a_flag_that_is_none_was_not_given() -> None:
    loaded = load(environ={"RESPOOL_LISTEN": "127.0.0.1:1"}, flags={"listen": None})
    assert loaded.network.listen == "127.0.0.1:1"


def test_variables_of_others_are_left_alone() -> None:
    environ = {"PATH": "/bin", "RESPOOL_BROKER": "elsewhere:9092", "RESPOOL_FUZZ": "long"}
    assert load(environ=environ) == Settings()


def test_the_client_config_of_commands_is_no_unknown_variable() -> None:
    assert unknown_variables({"RESPOOL_CLIENT_CONFIG": "client.properties"}) == []


def test_a_retired_name_is_never_suggested() -> None:
    [warning] = unknown_variables({"RESPOOL_LEND_FILE": "false"})
    assert "RESPOOL_LEND_FILES" not in warning


def test_an_unknown_variable_is_a_warning_that_names_the_closest_setting() -> None:
    """A broker in a container did not start for variables that somebody else had set."""
    environ = {"RESPOOL_LISTENS": "x", "RESPOOL_TOPIC_RETENTION": "1", "RESPOOL_IO_THREADS": "2"}
    assert load(environ=environ) == Settings.from_flat(io_threads=2)
    assert unknown_variables(environ) == [
        "environment variable RESPOOL_LISTENS is ignored: there is no such setting; did you mean RESPOOL_LISTEN?",
        (
            "environment variable RESPOOL_TOPIC_RETENTION is ignored: there is no such setting; "
            "did you mean RESPOOL_TOPIC_RETENTION_MS?"
        ),
    ]


# As a pod has them beside services named respool (with a named port) and respool-etcd.
OF_KUBERNETES = {
    "RESPOOL_SERVICE_HOST": "10.96.0.7",
    "RESPOOL_SERVICE_PORT": "9092",
    "RESPOOL_SERVICE_PORT_KAFKA_PLAIN": "9092",
    "RESPOOL_PORT": "tcp://10.96.0.7:9092",
    "RESPOOL_PORT_9092_TCP": "tcp://10.96.0.7:9092",
    "RESPOOL_PORT_9092_TCP_PROTO": "tcp",
    "RESPOOL_PORT_9092_TCP_PORT": "9092",
    "RESPOOL_PORT_9092_TCP_ADDR": "10.96.0.7",
    "RESPOOL_ETCD_SERVICE_HOST": "fd00::7",
    "RESPOOL_ETCD_SERVICE_PORT": "2379",
    "RESPOOL_ETCD_PORT": "tcp://[fd00::7]:2379",
    "RESPOOL_ETCD_PORT_2379_TCP_ADDR": "fd00::7",
}


def test_variables_that_kubernetes_sets_for_a_service_are_ignored_without_a_warning() -> None:
    """A service named respool kept every broker in its namespace from starting."""
    assert load(environ=OF_KUBERNETES) == Settings()
    assert unknown_variables(OF_KUBERNETES) == []


def test_a_variable_with_a_name_but_not_a_value_of_kubernetes_is_a_warning() -> None:
    [warning] = unknown_variables({"RESPOOL_PORT": "9092"})
    assert warning.startswith("environment variable RESPOOL_PORT is ignored")


def test_every_setting_can_come_from_each_place(file: Path) -> None:
    default = Settings()
    for name, value in default.flat().items():
        variable = f"RESPOOL_{name.upper()}"
        text = value if isinstance(value, str) else str(value).lower()
        toml = f'"{value}"' if isinstance(value, str) else text
        assert load(file, f"{name} = {toml}") == default
        assert load(environ={variable: text}) == default
        assert load(flags={name: value}) == load(flags={name: text}) == default
    for name, text in default.topic_defaults.as_text.items():
        variable = f"RESPOOL_TOPIC_{name.upper().replace('.', '_')}"
        expected = {name: text}
        assert load(file, f'[topic]\n"{name}" = "{text}"').topics.overrides == expected
        assert load(file, f'[topic]\n{name} = "{text}"').topics.overrides == expected
        assert load(environ={variable: text}).topics.overrides == expected
        assert load(flags={f"topic.{name}": text}).topics.overrides == expected
        assert load(flags={"topic": {name: text}}).topics.overrides == expected


# -- what is understood ------------------------------------------------------------------------------------------------


def test_topic_names_may_be_quoted_or_nested(file: Path) -> None:
    content = """
        [topic]
        retention.ms = 1000
        segment = { bytes = 2000, index.bytes = 3000 }
        "max.message.bytes" = 4000
        "cleanup.policy" = ["delete"]
        [topic.respool.flush]
        interval.ms = 5000
    """
    assert load(file, content).topics.overrides == {
        "retention.ms": "1000",
        "segment.bytes": "2000",
        "segment.index.bytes": "3000",
        "max.message.bytes": "4000",
        "cleanup.policy": "delete",
        "respool.flush.interval.ms": "5000",
    }


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1048576", 2**20),
        (" 1048576 ", 2**20),
        ("1048576b", 2**20),
        ("1024k", 2**20),
        ("1024KiB", 2**20),
        ("1 MiB", 2**20),
        ("1m", 2**20),
    ],
)
def test_sizes_may_have_a_unit(file: Path, text: str, number: int) -> None:
    assert load(file, f'frame_bytes_max = "{text}"').network.frame_bytes_max == number
    assert load(environ={"RESPOOL_FETCH_BYTES_MAX": text}).fetch.fetch_bytes_max == number
    assert load(flags={"topic.segment.bytes": text}).topic_defaults.segment_bytes == number


def test_large_sizes_reach_their_names() -> None:
    loaded = load(flags={"topic.retention.bytes": "3TiB", "memory_bytes_max": "2g"})
    assert loaded.topic_defaults.retention_bytes == 3 * 2**40
    assert loaded.network.memory_bytes_max == 2 * 2**30


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5400000", 5_400_000),
        ("5400000ms", 5_400_000),
        ("5400s", 5_400_000),
        ("90m", 5_400_000),
        ("1h30m", 5_400_000),
        ("1h 30M", 5_400_000),
        ("1w", 604_800_000),
        ("7d", 604_800_000),
    ],
)
def test_times_may_have_a_unit(text: str, number: int) -> None:
    assert load(environ={"RESPOOL_CONNECTION_IDLE_MS": text}).network.connection_idle_ms == number
    assert load(flags={"topic.retention.ms": text}).topic_defaults.retention_ms == number


def test_without_limit_is_minus_one() -> None:
    loaded = load(flags={"topic.retention.ms": "-1", "topic.retention.bytes": -1})
    assert loaded.topic_defaults.retention_ms == loaded.topic_defaults.retention_bytes == -1


@pytest.mark.parametrize("text", ["true", "1", "yes", "True", " YES "])
def test_yes_has_many_words(text: str) -> None:
    assert load(environ={"RESPOOL_INSECURE": text}).network.insecure


@pytest.mark.parametrize("text", ["false", "0", "no", "FALSE"])
def test_no_has_many_words(text: str) -> None:
    assert not load(environ={"RESPOOL_AUTO_CREATE_TOPICS": text}).topics.auto_create_topics


# -- how errors are told -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("num_partition = 1", "num_partition: there is no such setting; did you mean num_partitions?"),
        ("xyzzy = 1", "xyzzy: there is no such setting"),
        ("[network]", "network: the table is empty, and there is no such setting"),
        ("[broker]\nid = 1", "broker.id: there is no such setting; did you mean broker_id?"),
        ("[topic]\nretentoin.ms = 1", "retentoin.ms: there is no such topic setting; did you mean topic.retention.ms?"),
        ("topic = 1", "topic: is a table of settings, not 1"),
        ("num_partitions = true", "num_partitions: True is not a whole number"),
        ("num_partitions = 1.5", "num_partitions: 1.5 is not a whole number"),
        ('num_partitions = "many"', "num_partitions: 'many' is not a whole number"),
        ('num_partitions = "1m"', "num_partitions: '1m' is not a whole number"),
        ("num_partitions = [1]", "num_partitions: [1] is not a whole number"),
        ("listen = 9092", "listen: 9092 is not text"),
        ("insecure = 2", "insecure: 2 is neither true nor false"),
        ('frame_bytes_max = "100MB"', "frame_bytes_max: '100MB' is not a whole number, nor a size"),
        ('frame_bytes_max = "1h"', "frame_bytes_max: '1h' is not a whole number, nor a size"),
        ('connection_idle_ms = "soon"', "connection_idle_ms: 'soon' is not a whole number, nor a time"),
        ('connection_idle_ms = ""', "connection_idle_ms: '' is not a whole number, nor a time"),
        ('connection_idle_ms = "-1h"', "connection_idle_ms: '-1h' is not a whole number"),
        ("[topic]\nretention.ms = 1.5", "[topic] retention.ms: 1.5 is neither text nor a whole"),
        ("[topic]\nretention.ms = [1]", "[topic] retention.ms: [1] is neither text nor a whole"),
        ("[topic]\nretention.ms = true", "[topic] retention.ms: 'true' is not a whole number"),
        ("[topic]\nretention.ms = -2", "[topic] retention.ms: -2 is outside -1 to"),
        ('[topic]\ncleanup.policy = "shred"', "[topic] cleanup.policy: 'shred' is not one of"),
        ("[topic]\nflush.messages = 5", "[topic] flush.messages: 5 is refused: batches are synced one by one"),
        ('[topic]\nflush.ms = 5\n"respool.flush" = "os"', "[topic] flush.ms = 5 means respool.flush = interval, and"),
        ("[topic]\nremote.storage.enable = true", "remote.storage.enable has no default"),
        ("[topic]\nremote.copy.lag.ms = 1", "[topic] remote.copy.lag.ms: is refused: local segments are never removed"),
        ('[topic]\nretention.ms = 1\n"retention.ms" = 2', "[topic] retention.ms: is given twice"),
        ("num_partitions = 0", "num_partitions = 0 is below 1"),
        ("num_partitions == 0", "line 1"),
        ('[topic]\nrespool.flush = "os"\nrespool.flush.interval.ms = 1', "put quotes around names"),
    ],
)  # fmt: skip
def test_an_error_in_the_file_names_file_and_setting(file: Path, content: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(file, content)
    assert str(caught.value).startswith(f"{file}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("RESPOOL_IO_THREADS", "", "'' is not a whole number"),
        ("RESPOOL_IO_THREADS", "0", "io_threads = 0 is below 1"),
        ("RESPOOL_INSECURE", "maybe", "'maybe' is neither true nor false"),
        ("RESPOOL_LISTEN", "0.0.0.0:9092", "not authenticated"),
        ("RESPOOL_TOPIC_RETENTION_MS", "soon", "'soon' is not a whole number, nor a time"),
        ("RESPOOL_MEMORY_BYTES_MAX", "1MiB", "exceeds memory_bytes_max"),
    ],
)
def test_an_error_in_the_environment_names_the_variable(
    variable: str, text: str, told: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(environ={variable: text})
    assert str(caught.value).startswith(f"environment variable {variable}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("retention.ms", "1", "did you mean topic.retention.ms?"),
        ("topic.retention", "1", "did you mean topic.retention.ms?"),
        ("broker_id", None.__class__, "is not a whole number"),
        ("topic", "x", "there is no such setting"),
    ],
)
def test_an_error_in_a_flag_names_the_flag(name: str, value: object, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={name: value})
    assert str(caught.value).startswith(f"command line: {name}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"log_level": "loud"}, "command line: log_level = 'loud' is not one of"),
        ({"listen": "0.0.0.0:1"}, "command line: listen = '0.0.0.0:1' would let anyone"),
    ],
)
def test_an_error_that_begins_with_the_setting_does_not_say_its_name_twice(
    flags: dict[str, object], told: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags=flags)
    assert str(caught.value).startswith(told)


def test_settings_that_do_not_go_together_name_all_their_places(file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(
            file,
            'frame_bytes_max = "20MiB"',
            environ={"RESPOOL_MEMORY_BYTES_MAX": "10MiB", "RESPOOL_IO_THREADS": "1"},
        )
    assert str(caught.value).startswith(
        f"{file}: frame_bytes_max; environment variable RESPOOL_MEMORY_BYTES_MAX: "
    )


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ghost\.toml: No such file"):
        load(tmp_path / "ghost.toml")
    with pytest.raises(SettingsError, match="Is a directory"):
        load(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"binary\.toml: not UTF-8 text"):
        load(binary)


# -- writing -----------------------------------------------------------------------------------------------------------


def test_the_example_of_the_defaults_sets_nothing_and_tells_everything() -> None:
    text = write_example(Settings())
    assert tomllib.loads(text) == {"topic": {}}
    for item in SETTINGS.values():
        assert item.doc in text
        assert f"\n# {item.name} = " in text
    for name, rule in CONFIG_RULES.items():
        assert rule.doc in text
        assert f'\n# "{name}" = ' in text


def test_the_example_is_right_when_its_comments_are_taken_off(file: Path) -> None:
    lines = write_example(Settings()).splitlines()
    active = [line.removeprefix("# ") if " = " in line else line for line in lines]
    loaded = load(file, "\n".join(active))
    assert loaded.with_flat(topic={}) == Settings()
    assert loaded.topic_defaults == Settings().topic_defaults


def test_what_differs_is_written_with_its_default_beside_it() -> None:
    text = write_example(Settings.from_flat(num_partitions=6, topic={"retention.ms": "-1"}))
    assert "Default: 1\nnum_partitions = 6\n" in text
    assert 'Default: "604800000"\n"retention.ms" = "-1"\n' in text


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ANY_SETTINGS = st.builds(
    Settings.from_flat,
    data=TEXT,
    rack=TEXT,
    num_partitions=st.integers(1, 100),
    insecure=st.booleans(),
    topic=st.dictionaries(
        st.sampled_from(["retention.ms", "segment.ms", "retention.bytes"]),
        st.integers(1, 10**12).map(str),
    ),
)


@pytest.mark.long
@settings(max_examples=2_000 if LONG else 50, deadline=None)
@given(written=ANY_SETTINGS)
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, written: Settings
) -> None:
    file = tmp_path_factory.mktemp("config") / "respool.toml"
    file.write_bytes(write_example(written).encode())
    assert load(file) == written


def test_secrets_are_read_from_everywhere_and_written_nowhere(file: Path) -> None:
    given = load(
        file, 'etcd = "localhost"\netcd_user = "u"', environ={"RESPOOL_ETCD_PASSWORD": "hunter2"}
    )
    assert given.metadata_store.password == "hunter2"
    assert "hunter2" not in write_example(given)
    with pytest.raises(SettingsError, match="etcd_password") as raised:
        load(file, "etcd_password = 42424242")
    assert "42424242" not in str(raised.value)


# -- other names -----------------------------------------------------------------------------------------------------


def test_a_settings_old_name_is_accepted_with_a_warning(file: Path) -> None:
    variable = "RESPOOL_REPLICA_HURRY_BYTES"
    goes = "the old name goes with the next release"
    loaded = load(
        file,
        "lend_files = false",
        environ={variable: "7"},
        flags={"etcd": "localhost"},
    )
    assert not loaded.fetch.local_reads
    assert loaded.replication.replica_fetch_ahead_bytes == 7
    assert loaded.renamed == (
        f"{file}: lend_files: is called local_reads now; {goes}",
        f"environment variable {variable}: is called replica_fetch_ahead_bytes now; {goes}",
    )
    assert load(file, "local_reads = false").renamed == ()


def test_kafkas_names_of_broker_settings_are_accepted(file: Path) -> None:
    text = """
        num.partitions = 6
        "log.dirs" = "/var/lib/respool"
        listeners = "PLAINTEXT://127.0.0.1:19092"
        log.retention.ms = "7d"
        log.flush.interval.ms = "2s"
        log.preallocate = false
    """
    loaded = load(file, text, flags={"group.max.size": "5"})
    assert (loaded.topics.num_partitions, loaded.data) == (6, "/var/lib/respool")
    assert loaded.network.listen_address == ("127.0.0.1", 19092)
    assert loaded.topics.overrides == {
        "flush.ms": "2000",
        "preallocate": "false",
        "retention.ms": "604800000",
    }
    assert loaded.topic_defaults.respool_flush_interval_ms == 2000
    assert loaded.groups.group_max_size == 5
    assert loaded.renamed == ()


@pytest.mark.parametrize(
    "text",
    [
        "num_partitions = 1\nnum.partitions = 2",
        "lend_files = true\nlocal_reads = true",
        "log.retention.ms = 1\n[topic]\nretention.ms = 2",
    ],
)
def test_a_setting_under_two_names_in_one_place_is_refused(file: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="is the same setting as"):
        load(file, text)
    assert (
        load(file, "num_partitions = 1", flags={"num.partitions": "2"}).topics.num_partitions == 2
    )
