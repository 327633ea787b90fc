"""The keys of the metadata store and their JSON values.

```
/brokers/<id>                  {"host", "port", "rack", "incarnation", "is_draining", "epoch", "lease",
                                "listeners"}                                               on that lease
/registry/<id>                 {"rack", "is_removed", "is_drained", "clean_epoch", "run"}
/controller                    {"broker"}                                                   on the broker's lease
/broker-configs/<id>           {"overrides"}                                               without an id: of all brokers
/group-configs/<group id>      {"overrides"}
/topics/<name>                 {"id", "overrides", "partitions"}
                                of a view also {"view": {"of", "where"}}, with the parent's id, and 0 partitions;
                                of a topic that was shrunk also {"layout": {"active", "named", "family", "epoch",
                                "counts", "previous", "first_epoch"}}
/partitions/<topic id>/<n>     {"replicas", "isr", "leader", "leader_epoch", "elr", "last_leader", "adding", "removing",
                                "offline"}
                                after a change of the layout also {"handover": {"epoch", "sealed_end", "hold"}}
/acls/<resource>/<pattern>/<name in base64>    {"entries": [{"principal", "operation", "permission", "host"}]}
/quotas/<entity in base64>     {"limits"}
/producer-ids                  {"next"}
/cluster                       {"id"}
```
Users and delegation tokens: `login_store.py`.

A missing field has its default, and an unknown field is ignored: brokers of two versions share a store during a rolling
upgrade.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from respool.model.cluster import (
    BrokerEndpoint,
    PartitionImage,
    RegistryEntry,
    StoredOverrides,
)
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId
from respool.model.layouts.partition_layout import Handover, PartitionLayout, ReaderHold

BROKERS = "/brokers/"
REGISTRY = "/registry/"
CONTROLLER = "/controller"
BROKER_CONFIGS = "/broker-configs/"
GROUP_CONFIGS = "/group-configs/"
TOPICS = "/topics/"
PARTITIONS = "/partitions/"
PRODUCER_IDS = "/producer-ids"
CLUSTER = "/cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRecord:
    parent_id: TopicId
    # The condition's text: a newer version may have written one that this version cannot parse.
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    id: TopicId
    overrides: Mapping[str, str]
    # 0 for a view, which has its parent's partitions. An older version takes it for a topic without partitions.
    partition_count: int
    view: ViewRecord | None = None
    layout: PartitionLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """The registration of a running broker."""

    endpoint: BrokerEndpoint
    # Unique for each registration, so that a broker recognises its own.
    incarnation: UUID
    # The broker's lease, which is revoked if the broker is known to be dead. None: written by an older version.
    lease: int | None = None


def broker_key(broker: BrokerId) -> str:
    return f"{BROKERS}{broker}"


def registry_key(broker: BrokerId) -> str:
    return f"{REGISTRY}{broker}"


def broker_config_key(name: str) -> str:
    """`name` is as in the config APIs: the broker id, or "" for all brokers."""
    return BROKER_CONFIGS + name


def group_config_key(group_id: str) -> str:
    return GROUP_CONFIGS + group_id


def topic_key(name: str) -> str:
    return TOPICS + name


def topic_keys(changed: Iterable[str]) -> list[str]:
    """The keys of topics and views among these."""
    return [key for key in changed if key.startswith(TOPICS)]


def partition_keys(changed: Iterable[str]) -> list[str]:
    return [key for key in changed if key.startswith(PARTITIONS)]


def topic_names(changed: Iterable[str]) -> list[str]:
    """The names of the topics and views among these keys, in an order that does not depend on theirs."""
    return sorted(key.removeprefix(TOPICS) for key in topic_keys(changed))


def partition_key(topic_id: TopicId, partition: int) -> str:
    return f"{PARTITIONS}{topic_id.hex}/{partition}"


def parse_partition_key(key: str) -> tuple[TopicId, int]:
    topic_id, number = key.removeprefix(PARTITIONS).split("/")
    return TopicId(UUID(hex=topic_id)), int(number)


def encode_topic(topic: TopicRecord) -> bytes:
    fields: dict[str, object] = {
        "id": topic.id.hex,
        "overrides": dict(topic.overrides),
        "partitions": topic.partition_count,
    }
    if topic.view is not None:
        fields["view"] = {"of": topic.view.parent_id.hex, "where": topic.view.where}
    if topic.layout is not None:
        fields["layout"] = asdict(topic.layout)
    return to_json(fields)


def decode_topic(value: bytes) -> TopicRecord:
    fields = json.loads(value)
    view = fields.get("view")
    return TopicRecord(
        id=_topic_id(fields["id"]),
        overrides=fields["overrides"],
        partition_count=fields["partitions"] if view is None else 0,
        view=None
        if view is None
        else ViewRecord(parent_id=_topic_id(view["of"]), where=view["where"]),
        layout=_layout(fields.get("layout")),
    )


def _layout(fields: Mapping[str, Any] | None) -> PartitionLayout | None:
    if fields is None:
        return None
    return PartitionLayout(
        active=fields["active"],
        named=fields["named"],
        family=fields["family"],
        epoch=fields["epoch"],
        counts=tuple(fields["counts"]),
        previous=fields["previous"],
        first_epoch=LeaderEpoch(fields.get("first_epoch", 0)),
    )


def encode_partition(partition: PartitionImage) -> bytes:
    fields: dict[str, object] = {
        "replicas": partition.replicas,
        "isr": partition.isr,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "elr": partition.elr,
        "last_leader": partition.last_leader,
        "last_folder": _hex(partition.last_folder),
        "adding": partition.adding,
        "removing": partition.removing,
        "origin": partition.origin,
        "offline": partition.offline,
    }
    if partition.handover is not None:
        fields["handover"] = _handover_fields(partition.handover)
    return to_json(fields)


def _handover_fields(handover: Handover) -> dict[str, object]:
    hold = handover.hold
    return {
        "epoch": handover.epoch,
        "sealed_end": handover.sealed_end,
        "hold": None
        if hold is None
        else {"end": hold.end, "since_ms": hold.since_ms, "awaited": hold.awaited},
    }


def _handover(fields: Mapping[str, Any] | None) -> Handover | None:
    if fields is None:
        return None
    hold, sealed_end = fields.get("hold"), fields.get("sealed_end")
    return Handover(
        epoch=fields["epoch"],
        sealed_end=None if sealed_end is None else Offset(sealed_end),
        hold=None
        if hold is None
        else ReaderHold(
            end=Offset(hold["end"]),
            since_ms=hold["since_ms"],
            awaited=tuple((number, Offset(end)) for number, end in hold["awaited"]),
        ),
    )


def decode_partition(value: bytes, *, revision: int = 0) -> PartitionImage:
    fields = json.loads(value)
    return PartitionImage(
        replicas=_brokers(fields["replicas"]),
        isr=_brokers(fields["isr"]),
        leader=_broker(fields["leader"]),
        leader_epoch=LeaderEpoch(fields["leader_epoch"]),
        elr=_brokers(fields.get("elr", ())),
        last_leader=_broker(fields.get("last_leader")),
        last_folder=_uuid(fields.get("last_folder")),
        adding=_brokers(fields.get("adding", ())),
        removing=_brokers(fields.get("removing", ())),
        origin=_brokers(fields.get("origin", ())),
        offline=_brokers(fields.get("offline", ())),
        handover=_handover(fields.get("handover")),
        revision=revision,
    )


def encode_broker(registration: BrokerRegistration) -> bytes:
    endpoint = registration.endpoint
    return to_json(
        {
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": endpoint.rack,
            "incarnation": registration.incarnation.hex,
            "is_draining": endpoint.is_draining,
            "knows_acls": True,
            # 0 in the first write, whose revision becomes the epoch. Later writes keep the epoch.
            "epoch": endpoint.epoch,
            "lease": registration.lease,
            **({"listeners": endpoint.listeners} if endpoint.listeners else {}),
            "layouts": endpoint.knows_layouts,
        }
    )


def decode_broker(broker: BrokerId, value: bytes, *, revision: int) -> BrokerRegistration:
    fields = json.loads(value)
    return BrokerRegistration(
        endpoint=BrokerEndpoint(
            id=broker,
            host=fields["host"],
            port=fields["port"],
            rack=fields.get("rack"),
            epoch=fields.get("epoch", 0) or revision,
            is_draining=fields.get("is_draining", False),
            knows_acls=fields.get("knows_acls", False),
            listeners=tuple(
                (str(name), str(host), int(port))
                for name, host, port in fields.get("listeners", ())
            ),
            # A version that does not know layouts does not write this.
            knows_layouts=fields.get("layouts", False),
        ),
        incarnation=UUID(hex=fields["incarnation"]),
        lease=fields.get("lease"),
    )


def encode_registry(entry: RegistryEntry) -> bytes:
    return to_json(
        {
            "rack": entry.rack,
            "host": entry.host,
            "port": entry.port,
            "is_removed": entry.is_removed,
            "is_drained": entry.is_drained,
            "clean_epoch": entry.clean_epoch,
            "run": _hex(entry.run),
            "folder": _hex(entry.folder),
        }
    )


def decode_registry(value: bytes, *, revision: int = 0) -> RegistryEntry:
    fields = json.loads(value)
    return RegistryEntry(
        rack=fields.get("rack"),
        host=fields.get("host"),
        port=fields.get("port"),
        is_removed=fields.get("is_removed", False),
        is_drained=fields.get("is_drained", False),
        clean_epoch=fields.get("clean_epoch"),
        run=_uuid(fields.get("run")),
        folder=_uuid(fields.get("folder")),
        revision=revision,
    )


def encode_overrides(overrides: Mapping[str, str]) -> bytes:
    return to_json({"overrides": dict(overrides)})


def decode_overrides(value: bytes, *, revision: int = 0) -> StoredOverrides:
    return StoredOverrides(values=json.loads(value)["overrides"], revision=revision)


def encode_controller(broker: BrokerId) -> bytes:
    return to_json({"broker": broker})


def decode_controller(value: bytes) -> BrokerId:
    return BrokerId(json.loads(value)["broker"])


def encode_cluster(cluster_id: str) -> bytes:
    return to_json({"id": cluster_id})


def decode_cluster(value: bytes) -> str:
    return str(json.loads(value)["id"])


def _topic_id(text: str) -> TopicId:
    return TopicId(UUID(hex=text))


def _broker(value: int | None) -> BrokerId | None:
    return None if value is None else BrokerId(value)


def _brokers(values: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(one) for one in values)


# Made once: `json.dumps` makes one per call.
_TO_JSON = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def to_json(fields: Mapping[str, object]) -> bytes:
    return _TO_JSON(fields).encode()


def _hex(one: UUID | None) -> str | None:
    return None if one is None else one.hex


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(hex=text)
