"""A Kafka broker's server.properties: each line is a setting, accepted, or refused by name; all problems at once."""

from pathlib import Path
from typing import cast

import pytest

from respool.model.errors import SettingsError
from respool.model.kafka_settings.kafka_lines import kafka_line
from respool.model.setting_fields import ALIASES, KAFKA_NAMES, TOPIC_DEFAULT_NAMES
from respool.model.settings import Settings
from respool.model.topic_config import CONFIG_RULES, WITHOUT_DEFAULT, TopicConfig
from respool.model.topic_defaults import names_of_default
from respool.node.config import load_settings
from respool.node.kafka_listener_lines import FoundLines, ListenerLines

LISTENER_LINES = ListenerLines(cast("FoundLines", None)).names

# Every setting of a broker of Apache Kafka 4.3.1, one a line.
KAFKAS = Path(__file__).with_name("kafka_broker_settings.txt").read_text().split()

READ_BY_HAND = {
    "authorizer.class.name",
    "broker.id",
    "log.dir",
    "process.roles",
}

# What a new Kafka is started with.
NEW_BROKER = """
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kafka
num.partitions=4
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=24
log.segment.bytes=1073741824
"""


def load(
    tmp_path: Path, text: str, *, environ: dict[str, str] | None = None, **flags: object
) -> Settings:
    file = tmp_path / "server.properties"
    file.write_text(text)
    return load_settings(file=None, environ=environ or {}, flags=flags, kafka_file=file)


def refused(tmp_path: Path, text: str) -> list[str]:
    """The message's lines, without what they have in common."""
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_the_file_of_a_new_kafka_is_understood_as_it_is(tmp_path: Path) -> None:
    settings = load(tmp_path, NEW_BROKER)
    assert (settings.broker_id, settings.data) == (7, "/var/lib/kafka")
    assert settings.network.listen == "127.0.0.1:9092"
    assert settings.network.advertised == "localhost:9092"
    assert settings.topics.num_partitions == 4
    assert settings.controller.transaction_state_topic_replication_factor == 1
    assert settings.topic_defaults.retention_ms == 24 * 3_600_000
    notes = "\n".join(settings.accepted)
    for name in ("process.roles", "num.io.threads", "share.coordinator.state.topic.min.isr"):
        assert notes.count(name) == 1
    # One sentence for each reason.
    assert len(settings.accepted) < 10


def test_every_setting_of_a_kafka_broker_is_known_by_name() -> None:
    by_hand = {*READ_BY_HAND, *LISTENER_LINES}
    known = {*by_hand, *ALIASES, *CONFIG_RULES, *TOPIC_DEFAULT_NAMES.values()}
    assert [name for name in KAFKAS if name not in known and kafka_line(name) is None] == []


def test_names_of_settings_are_kafkas_of_today() -> None:
    of_kafka_4_4 = {name for name in KAFKA_NAMES.values() if "deadletterqueue" in name}
    of_authorizer = {"super.users", "allow.everyone.if.no.acl.found"}
    assert set(KAFKA_NAMES.values()) - of_kafka_4_4 - of_authorizer <= set(KAFKAS)


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
    ],
)
def test_kafkas_authorizers_enforce_acls(tmp_path: Path, name: str) -> None:
    settings = load(tmp_path, f"authorizer.class.name={name}\nsuper.users=User:a;User:b\n")
    assert settings.access.authorization == "enforce"
    assert settings.access.super_user_names == {"User:a", "User:b"}


def test_all_refused_lines_are_said_at_once_with_their_numbers(tmp_path: Path) -> None:
    text = (
        "# a comment\n"
        "ssl.keystore.location=/x\n"
        "log.dirs=/a,/b\n"
        "no.such=1\n"
        "num.partitions=x\n"
        "auto.leader.rebalance.enable=false\n"
        "log.cleanup.policy=\\\n  tidy\n"
        "quota.window.num=none\n"
        "log.retention.hours=1h\n"
    )
    problems = refused(tmp_path, text)
    names = [line.split(": ")[:2] for line in problems]
    assert names == [
        ["line 2", "ssl.keystore.location"],
        ["line 3", "log.dirs"],
        ["line 4", "no.such"],
        ["line 5", "num.partitions"],
        ["line 6", "auto.leader.rebalance.enable"],
        ["line 7", "log.cleanup.policy"],
        ["line 9", "quota.window.num"],
        ["line 10", "log.retention.hours"],
    ]
    assert "accepted is only true" in problems[4]


def test_a_topics_setting_is_refused_with_the_name_of_its_default(tmp_path: Path) -> None:
    # Kafka's brokers ignore it, so the messages may be older than it says.
    assert refused(tmp_path, "retention.ms=1000\n") == [
        "line 1: retention.ms: is a topic's setting; the default of all topics is log.retention.ms"
    ]
    problems = refused(tmp_path, "log.retention.ms=5\nretention.ms=1000\nmax.message.bytes=1\n")
    assert [line.split(": ")[1] for line in problems] == ["retention.ms", "max.message.bytes"]


@pytest.mark.parametrize("line", ["log.retention.hours=0", "log.retention.ms= 0 "])
def test_a_retention_that_keeps_nothing_is_refused_as_in_kafka(tmp_path: Path, line: str) -> None:
    (problem,) = refused(tmp_path, line)
    assert "would delete all messages" in problem


def test_lines_that_contradict_each_other_are_said_with_those_that_are_refused(
    tmp_path: Path,
) -> None:
    problems = refused(
        tmp_path,
        "no.such=1\ngroup.min.session.timeout.ms=9\ngroup.max.session.timeout.ms=8\n",
    )
    assert len(problems) == 2
    assert "group_min_session_timeout_ms = 9 exceeds" in problems[1]


def test_every_other_source_takes_precedence(tmp_path: Path) -> None:
    text = "num.partitions=2\nbroker.rack=a\nlog.retention.ms=5\nmessage.max.bytes=6\n"
    config = tmp_path / "respool.toml"
    config.write_text('rack = "b"\n[topic]\n"retention.ms" = "7"\n')
    file = tmp_path / "server.properties"
    file.write_text(text)
    settings = load_settings(
        file=config,
        environ={"RESPOOL_NUM_PARTITIONS": "3"},
        flags={"message.max.bytes": "8"},
        kafka_file=file,
    )
    assert (settings.topics.num_partitions, settings.rack) == (3, "b")
    assert settings.topic_defaults.retention_ms == 7
    assert settings.topic_defaults.max_message_bytes == 8


def test_a_default_in_a_finer_unit_takes_precedence_as_in_kafka(tmp_path: Path) -> None:
    settings = load(tmp_path, "log.retention.hours=1\nlog.retention.minutes=2\nlog.roll.hours=3\n")
    assert settings.topic_defaults.retention_ms == 120_000
    assert settings.topic_defaults.segment_ms == 3 * 3_600_000
    assert "log.retention.hours: log.retention.minutes takes precedence" in settings.accepted[0]


@pytest.mark.parametrize("name", sorted({*CONFIG_RULES} - {*KAFKAS}))
def test_a_topics_name_for_a_setting_is_refused_with_the_name_for_all_topics(
    tmp_path: Path, name: str
) -> None:
    if name in names_of_default(name) and name not in WITHOUT_DEFAULT:
        # A setting of Respool's own has one name for brokers and topics.
        load(tmp_path, f"{name}={TopicConfig().as_text[name]}\n")
        return
    [problem] = refused(tmp_path, f"{name}=5\n")
    if name in WITHOUT_DEFAULT:
        assert problem == f"line 1: {name}: is a topic's setting, and not a broker's"
        return
    default = TOPIC_DEFAULT_NAMES[name]
    why = f"{name}: is a topic's setting; the default of all topics is {default}"
    assert problem == f"line 1: {why}"
    # Beside its proper name neither takes precedence, as Kafka ignores a topic's name.
    proper = f"{default}={TopicConfig().as_text[name]}\n"
    assert refused(tmp_path, f"{proper}{name}=5\n") == [f"line 2: {why}"]


def test_a_flush_after_the_acknowledgement_is_said_at_the_start(tmp_path: Path) -> None:
    settings = load(tmp_path, "log.flush.interval.ms=1000\n")
    [warning] = settings.accepted
    assert "log.flush.interval.ms: acks=all is then answered from the page cache" in warning
    for same in ("log.flush.interval.ms=9223372036854775807", "log.flush.interval.messages=1"):
        assert load(tmp_path, same).accepted == ()
    both = "log.flush.interval.ms=1000\nlog.flush.interval.messages=1"
    assert load(tmp_path, both).accepted == ()


def test_a_format_of_messages_is_accepted_with_a_reason_of_its_own(tmp_path: Path) -> None:
    [note] = load(tmp_path, "log.message.format.version=3.0\n").accepted
    assert "messages are stored in format 2 only" in note


def test_the_last_of_two_lines_counts_as_in_java(tmp_path: Path) -> None:
    settings = load(tmp_path, "num.partitions=2\nnum.partitions=3\n")
    assert settings.topics.num_partitions == 3
    assert "num.partitions (line 1): a later line" in settings.accepted[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "not an address that clients can"),
        ("process.roles=controller", "no separate controllers"),
        ("process.roles=broker", "--etcd"),
        ("process.roles=observer", "is not broker"),
        ("controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093", "names 3 controllers"),
        ("controller.quorum.bootstrap.servers=a:9093,b:9093", "--etcd"),
        ("zookeeper.connect=zk-1:2181,zk-2:2181/kafka", "--etcd"),
        ("node.id=1\nbroker.id=2", "must be equal"),
        ("broker.id=-1", "not given out"),
        ("authorizer.class.name=org.apache.kafka.X", "StandardAuthorizer"),
        ("remote.log.storage.system.enable=true", "settings of its own"),
        ("leader.replication.throttled.rate=5", "while the broker runs"),
        ("log.flush.interval.messages=10000", "batches are synced one by one"),
        ("log.preallocate=true", "not allocated in advance"),
        ("log.retention.hours=-5", "log.retention.hours: -5 is below 0; -1 is for ever"),
        ("log.roll.hours=-1", "log.roll.hours: -1 is below 0"),
        ("log.retension.minutes=5", "did you mean log.retention.minutes?"),
        ("num.partitons=5", "did you mean num.partitions?"),
        ("num_partitions=5", "neither a setting of Apache Kafka"),
    ],
)
def test_what_respool_does_not_do_is_refused_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    assert why in " ".join(refused(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "process.roles=broker",
        "controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093",
        "zookeeper.connect=zk-1:2181,zk-2:2181/kafka",
        "replica.lag.time.max.ms=20000",
    ],
)
def test_a_broker_with_etcd_is_one_of_a_cluster(tmp_path: Path, text: str) -> None:
    load(tmp_path, text, etcd="localhost:2379")
    load(tmp_path, text, environ={"RESPOOL_ETCD": "localhost:2379"})


@pytest.mark.parametrize(
    "text",
    [
        "zookeeper.connect=localhost:2181",
        "controller.quorum.voters=1@localhost:9093",
        # These matter in a cluster only.
        "replica.lag.time.max.ms=20000\nbroker.session.timeout.ms=9000",
        "auto.leader.rebalance.enable=TRUE",
        "log.flush.interval.messages=9223372036854775807",
        "authorizer.class.name=",
        "broker.id=4",
    ],
)
def test_what_respool_does_anyway_is_accepted(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)


def test_listeners_on_every_interface_need_what_they_always_need(tmp_path: Path) -> None:
    text = "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://broker-1:9092\n"
    with pytest.raises(SettingsError, match=r"line 1: listeners: .*--insecure"):
        load(tmp_path, text)
    settings = load(tmp_path, text, insecure=True)
    assert settings.network.listen_address == ("0.0.0.0", 9092)
    assert settings.listeners[0].advertised_address == ("broker-1", 9092)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no\.properties"):
        load_settings(file=None, environ={}, flags={}, kafka_file=tmp_path / "no.properties")
    (tmp_path / "bytes.properties").write_bytes(b"a=\xff")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings(file=None, environ={}, flags={}, kafka_file=tmp_path / "bytes.properties")
