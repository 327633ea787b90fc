"""Reads a Kafka broker's server.properties, line by line: each is a setting here, is accepted, or is refused by name.

    node.id=1                         a setting, under Kafka's name
    num.network.threads=3             accepted: it has no effect, and a note says why
    auto.leader.rebalance.enable=true accepted: Respool does that anyway; false would be refused
    log.dirs=/a,/b                    refused, with the reason
    listeners=... ssl.* sasl.*        see `kafka_listener_lines.py`

All refused lines are reported at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from respool.model.errors import InvalidConfig, SettingsError
from respool.model.kafka_settings.java_properties import JavaProperty, java_properties
from respool.model.kafka_settings.kafka_flush import delayed_flush
from respool.model.kafka_settings.kafka_lines import kafka_line
from respool.model.setting_fields import ALIASES, TOPIC_DEFAULT_NAMES, TOPIC_DEFAULTS_IN_UNITS
from respool.model.settings import SETTINGS
from respool.model.topic_config import CONFIG_RULES, WITHOUT_DEFAULT
from respool.model.topic_defaults import (
    SETTING_OF_DEFAULT,
    TOPIC_DEFAULT_RULES,
    in_topic_unit,
    names_of_default,
)
from respool.node.kafka_listener_lines import ListenerLines

# A setting by its name here (`topic.` before those of topics), its value, and its line.
Line = tuple[str, str, str]
Parse = Callable[[str, str, str], object]

# ACLs with Kafka's meaning: in KRaft clusters, and before.
_AUTHORIZERS = frozenset(
    {
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
    }
)
_ROLES = frozenset({"broker", "controller"})
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")
_BOOTSTRAP, _VOTERS = "controller.quorum.bootstrap.servers", "controller.quorum.voters"
_NEEDS_ETCD = (
    "brokers of a cluster find each other in etcd: give its address with --etcd, or remove this line for a broker that "
    "is alone"
)


@dataclass(slots=True)
class KafkaProperties:
    """The lines of one file that are settings, and what to tell the operator about the others."""

    path: str
    settings: list[Line] = field(default_factory=list)
    # Why lines are refused.
    problems: list[str] = field(default_factory=list)
    # Accepted lines, by the reason why they have no effect.
    accepted: dict[str, list[str]] = field(default_factory=dict)
    # How settings of the file change Respool's guarantees.
    warnings: list[str] = field(default_factory=list)

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings, and one sentence for each reason."""
        return tuple(f"{self.path}: {warning}" for warning in self.warnings) + tuple(
            f"{self.path}: accepted without effect: {', '.join(names)}: {why}"
            for why, names in self.accepted.items()
        )

    def check(self) -> None:
        """
        Raises:
            SettingsError: lines are refused; the message lists all of them.
        """
        if self.problems:
            what = "line is" if len(self.problems) == 1 else "lines are"
            listed = "".join(f"\n  {one}" for one in self.problems)
            raise SettingsError(f"{self.path}: {len(self.problems)} {what} refused:{listed}")


def read_kafka_properties(path: str, *, is_clustered: bool, parse: Parse) -> KafkaProperties:
    """Read the file. `is_clustered`: etcd is given elsewhere. `parse` checks a value; it raises SettingsError.

    Raises:
        SettingsError: the file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SettingsError(f"{path}: {reason}") from error
    return _Reader(path, text, is_clustered=is_clustered, parse=parse).read()


class _Reader:
    def __init__(self, path: str, text: str, *, is_clustered: bool, parse: Parse) -> None:
        self._found = KafkaProperties(path=path)
        self.is_clustered = is_clustered
        self._parse = parse
        self.lines: dict[str, JavaProperty] = {}
        for one in java_properties(text):
            before = self.lines.get(one.name)
            if before is not None:
                # As in Java, the last line wins.
                self.accept(f"{one.name} (line {before.line})", "a later line sets it again")
            self.lines[one.name] = one
        self._listener_lines = ListenerLines(self)
        self._special: Mapping[str, Callable[[JavaProperty], None]] = {
            "authorizer.class.name": self._read_authorizer,
            "broker.id": self._read_id,
            "log.dir": self._read_folder,
            "log.dirs": self._read_folder,
            "node.id": self._read_id,
            "process.roles": self._read_roles,
            "zookeeper.connect": self._read_zookeeper,
            _BOOTSTRAP: self._read_controllers,
            _VOTERS: self._read_controllers,
        }

    def read(self) -> KafkaProperties:
        for one in self.lines.values():
            try:
                self._read_line(one)
            except SettingsError as error:
                self._found.problems.append(str(error))
        if not self._found.problems:
            self._warn_of_delayed_flush()
            self._listener_lines.warn_of_defaults()
        return self._found

    def _warn_of_delayed_flush(self) -> None:
        name = delayed_flush({name: one.value.strip() for name, one in self.lines.items()})
        if name is not None:
            self._found.warnings.append(
                f"{name}: acks=all is then answered from the page cache; leave it out to keep fdatasync"
            )

    def _read_line(self, one: JavaProperty) -> None:
        read = self._special.get(one.name)
        if read is not None:
            read(one)
            return
        if self._listener_lines.read(one):
            return
        name = ALIASES.get(one.name, one.name)
        if one.name in SETTING_OF_DEFAULT and name == one.name:
            # Such as compression.type, which has the same name for a broker and a topic.
            name = f"topic.{one.name}"
        if name.removeprefix("topic.") in CONFIG_RULES and name.startswith("topic."):
            self._read_default(one, name.removeprefix("topic."))
        elif name in SETTINGS and name != one.name:
            self._read_setting(one, name)
        else:
            self._read_other(one)

    def _read_setting(self, one: JavaProperty, name: str) -> None:
        if SETTINGS[name].needs_etcd and not self.is_clustered:
            self.accept(one.name, "it matters in a cluster only, and no etcd is given")
            return
        self.add(one, name, one.value.strip())

    def _read_default(self, one: JavaProperty, setting: str) -> None:
        finer = next(name for name in names_of_default(setting) if name in self.lines)
        if finer != one.name:
            self.accept(one.name, f"{finer} takes precedence, as in Kafka")
            return
        text = one.value.strip()
        if one.name in TOPIC_DEFAULTS_IN_UNITS and not text.removeprefix("-").isdecimal():
            raise self.problem(one, f"{text!r} is not a whole number")
        if one.name in TOPIC_DEFAULTS_IN_UNITS and text.startswith("-"):
            try:
                TOPIC_DEFAULT_RULES[one.name].parse(text)
            except InvalidConfig as error:
                raise self.problem(one, str(error)) from None
        value = in_topic_unit(one.name, text)
        if setting == "retention.ms" and value == "0":
            raise self.problem(
                one, "0 would delete all messages; as in Kafka it is at least 1, or -1 for ever"
            )
        self.add(one, f"topic.{setting}", value)

    def _read_other(self, one: JavaProperty) -> None:
        default = TOPIC_DEFAULT_NAMES.get(one.name)
        if default is not None:
            # Kafka's brokers ignore it: here it would not be known which of the two was meant.
            raise self.problem(one, f"is a topic's setting; the default of all topics is {default}")
        if one.name in WITHOUT_DEFAULT:
            raise self.problem(one, "is a topic's setting, and not a broker's")
        line, value = kafka_line(one.name), one.value.strip()
        if line is None:
            raise self.problem(
                one,
                "is neither a setting of Apache Kafka 4.3's brokers nor one of Respool; Respool's own are given with "
                f"--config, --set or RESPOOL_<NAME>{self._closest(one.name)}",
            )
        if line.accepted is not None and value.lower() not in {
            each.lower() for each in line.accepted
        }:
            only = " or ".join(filter(None, line.accepted))
            raise self.problem(one, line.why + (f"; accepted is only {only}" if only else ""))
        self.accept(one.name, line.why)

    def _closest(self, name: str) -> str:
        found = get_close_matches(
            name,
            {
                **ALIASES,
                **SETTING_OF_DEFAULT,
                **self._special,
                **dict.fromkeys(self._listener_lines.names),
            },
            n=1,
        )
        return f"; did you mean {found[0]}?" if found else ""

    # -- lines that need more than a name ----------------------------------------------------------------------------

    def _read_id(self, one: JavaProperty) -> None:
        other = self.lines.get("node.id")
        if one.name == "broker.id" and other is not None:
            if other.value.strip() != one.value.strip():
                raise self.problem(one, f"is not node.id = {other.value}; they must be equal")
            self.accept(one.name, "node.id says the same")
            return
        if one.value.strip() == "-1":
            raise self.problem(one, "ids are not given out: choose a number from 0 on")
        self.add(one, "broker_id", one.value.strip())

    def _read_authorizer(self, one: JavaProperty) -> None:
        name = one.value.strip()
        if not name:
            self.accept(one.name, "there is no authorizer without it")
        elif name in _AUTHORIZERS:
            self.add(one, "authorization", "enforce")
        else:
            known = " or ".join(sorted(_AUTHORIZERS))
            raise self.problem(one, f"Java classes cannot be loaded; ACLs are enforced for {known}")

    def _read_folder(self, one: JavaProperty) -> None:
        if one.name == "log.dir" and self.lines.get("log.dirs", one).value.strip():
            if "log.dirs" in self.lines:
                self.accept(one.name, "log.dirs takes precedence, as in Kafka")
                return
        elif not one.value.strip():
            self.accept(one.name, "it is empty")
            return
        folders = [each.strip() for each in one.value.split(",") if each.strip()]
        if len(folders) > 1:
            raise self.problem(one, f"there is one data folder for each broker, not {len(folders)}")
        self.add(one, "data", folders[0])

    def _read_roles(self, one: JavaProperty) -> None:
        roles = {each.strip() for each in one.value.split(",")}
        if not roles <= _ROLES:
            raise self.problem(one, "is not broker, or broker,controller")
        if "broker" not in roles:
            raise self.problem(
                one,
                "there are no separate controllers: each broker of a cluster can become the controller, so this node "
                "is not needed",
            )
        if "controller" not in roles and not self.is_clustered:
            raise self.problem(one, f"the controller is elsewhere, and {_NEEDS_ETCD}")
        self.accept(one.name, "each broker of a cluster can become the controller")

    def _read_controllers(self, one: JavaProperty) -> None:
        count = len([each for each in one.value.split(",") if each.strip()])
        if count > 1 and not self.is_clustered:
            raise self.problem(one, f"names {count} controllers; {_NEEDS_ETCD}")
        self.accept(one.name, "each broker of a cluster can become the controller")

    def _read_zookeeper(self, one: JavaProperty) -> None:
        servers = one.value.strip().partition("/")[0].split(",")
        is_local = all(each.strip().rpartition(":")[0] in _THIS_MACHINE for each in servers)
        if not is_local and not self.is_clustered:
            raise self.problem(one, f"there is no ZooKeeper; {_NEEDS_ETCD}")
        line = kafka_line(one.name)
        assert line is not None
        self.accept(one.name, line.why)

    # -- what becomes of a line --------------------------------------------------------------------------------------

    def add(self, one: JavaProperty, name: str, value: str) -> None:
        source = f"{self._found.path}, line {one.line}: {one.name}"
        try:
            self._parse(name, value, source)
        except SettingsError as error:
            raise SettingsError(str(error).removeprefix(f"{self._found.path}, ")) from None
        self._found.settings.append((name, value, source))

    def warn(self, text: str) -> None:
        self._found.warnings.append(text)

    def accept(self, what: str, why: str) -> None:
        self._found.accepted.setdefault(why, []).append(what)

    def problem(self, one: JavaProperty, why: str) -> SettingsError:
        return SettingsError(f"line {one.line}: {one.name}: {why}")
