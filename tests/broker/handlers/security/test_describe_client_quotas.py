"""DescribeClientQuotas and AlterClientQuotas, in every version."""

from math import inf, nan
from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

INVALID_REQUEST = 42
EXACT, DEFAULT, ANY_NAME = 0, 1, 2

every_version = pytest.mark.parametrize("version", versions(Api.ALTER_CLIENT_QUOTAS))
LIMIT = {"key": "producer_byte_rate", "value": 1e6, "remove": False}
REMOVAL = {"key": "producer_byte_rate", "value": 0.0, "remove": True}


def alter(
    broker: RunningBroker,
    entity: dict[str, str | None],
    *ops: dict[str, Any],
    version: int = 1,
    dry: bool = False,
) -> Any:
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    reply = broker.ask(
        Api.ALTER_CLIENT_QUOTAS,
        version,
        entries=[{"entity": named, "ops": ops}],
        validate_only=dry,
    )
    (entry,) = reply.entries
    assert {one.entity_type: one.entity_name for one in entry.entity} == entity
    return entry


def described(
    broker: RunningBroker, *components: dict[str, Any], strict: bool = False, version: int = 1
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    reply = broker.ask(Api.DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=strict)
    assert reply.error_code == 0
    return [
        (
            {part.entity_type: part.entity_name for part in one.entity},
            {value.key: value.value for value in one.values},
        )
        for one in reply.entries
    ]


def component(kind: str, match: int, name: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match, "match": name}


@every_version
def test_a_quota_is_set_shown_and_removed(running_broker: RunningBroker, version: int) -> None:
    alice: dict[str, str | None] = {"user": "alice"}
    assert described(running_broker, version=version) == []
    assert alter(running_broker, alice, LIMIT, version=version, dry=True).error_code == 0
    assert described(running_broker, version=version) == []
    assert alter(running_broker, alice, LIMIT, version=version).error_code == 0
    assert described(running_broker, version=version) == [(alice, {"producer_byte_rate": 1e6})]
    running_broker.restart()
    assert described(running_broker, version=version) == [(alice, {"producer_byte_rate": 1e6})]
    for _ in range(2):
        assert alter(running_broker, alice, REMOVAL, version=version).error_code == 0
    assert described(running_broker, version=version) == []


def test_a_filter_selects_by_type_and_name(running_broker: RunningBroker) -> None:
    entities: list[dict[str, str | None]] = [
        {"user": "alice"},
        {"user": None},
        {"user": "alice", "client-id": "app"},
        {"client-id": "app"},
        {"ip": "10.0.0.1"},
    ]
    for one in entities[:-1]:
        alter(running_broker, one, LIMIT)
    alter(running_broker, entities[-1], {**LIMIT, "key": "connection_creation_rate"})

    def selected(*components: dict[str, Any], strict: bool = False) -> list[int]:
        return sorted(
            entities.index(one) for one, _ in described(running_broker, *components, strict=strict)
        )

    assert selected() == [0, 1, 2, 3, 4]
    assert selected(component("user", EXACT, "alice")) == [0, 2]
    assert selected(component("user", EXACT, "alice"), strict=True) == [0]
    assert selected(component("user", DEFAULT)) == [1]
    assert selected(component("user", ANY_NAME)) == [0, 1, 2]
    assert selected(component("user", ANY_NAME), component("client-id", EXACT, "app")) == [2]
    assert selected(component("ip", EXACT, "10.0.0.1")) == [4]


@pytest.mark.parametrize(
    ("entity", "op"),
    [
        ({"user": "a"}, {**LIMIT, "value": 0.0}),
        ({"user": "a"}, {**LIMIT, "value": -1.0}),
        ({"user": "a"}, {**LIMIT, "value": nan}),
        ({"user": "a"}, {**LIMIT, "value": inf}),
        ({"user": "a"}, {**LIMIT, "value": 1.5}),
        ({"user": "a"}, {**LIMIT, "key": "unknown"}),
        ({"user": "a"}, {**LIMIT, "key": "connection_creation_rate"}),
        ({"ip": "10.0.0.1"}, LIMIT),
        ({"ip": "10.0.0.0/8"}, {**LIMIT, "key": "connection_creation_rate"}),
        ({"ip": "10.0.0.1", "user": "a"}, {**LIMIT, "key": "connection_creation_rate"}),
        ({"user": ""}, LIMIT),
        ({"group": "a"}, LIMIT),
        ({}, LIMIT),
        ({"user": "x" * 256}, LIMIT),
    ],
    ids=str,
)
def test_what_is_no_quota_is_refused_as_a_whole(
    running_broker: RunningBroker, entity: dict[str, str | None], op: dict[str, Any]
) -> None:
    ops = [{**LIMIT, "key": "consumer_byte_rate"}, op] if "user" in entity else [op]
    assert alter(running_broker, entity, *ops).error_code == INVALID_REQUEST
    assert described(running_broker) == []


def test_an_entity_has_one_entry_in_a_request(running_broker: RunningBroker) -> None:
    entry = {"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": [LIMIT]}
    reply = running_broker.ask(
        Api.ALTER_CLIENT_QUOTAS, 1, entries=[entry, entry], validate_only=False
    )
    assert [one.error_code for one in reply.entries] == [0, INVALID_REQUEST]
