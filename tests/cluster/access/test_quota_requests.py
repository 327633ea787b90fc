"""A quota is one key, changed as a whole or not at all."""

from respool.cluster.access.quota_requests import QuotaChange, alter_quotas
from respool.cluster.access_keys import (
    decode_quota,
    encode_quota,
    parse_quota_key,
    quota_key,
)
from respool.cluster.view import read_view
from respool.model.errors import InvalidRequest, PolicyViolation
from respool.model.security.quota import QuotaEntity, checked_entity
from respool.ports.metadata_store import StoredValue

ALICE: QuotaEntity = checked_entity([("user", "alice")])
BOTH = checked_entity([("user", "alice"), ("client-id", None)])


def test_an_entity_has_a_key_whatever_order_its_parts_came_in() -> None:
    other = checked_entity([("client-id", None), ("user", "alice")])
    assert other == BOTH
    assert parse_quota_key(quota_key(BOTH)) == BOTH
    assert decode_quota(encode_quota({"a": 1.5}), revision=3).limits == {"a": 1.5}


def test_limits_are_merged_and_an_empty_quota_is_deleted() -> None:
    view = read_view(
        {quota_key(ALICE): StoredValue(value=encode_quota({"producer_byte_rate": 5.0}), revision=4)}
    )
    change = QuotaChange(entity=ALICE, limits={"consumer_byte_rate": 7.0})
    results, (write,) = alter_quotas(view, [change], entities_max=1)
    assert results == [None]
    assert decode_quota(write.puts[quota_key(ALICE)], revision=0).limits == {
        "producer_byte_rate": 5.0,
        "consumer_byte_rate": 7.0,
    }
    gone = QuotaChange(entity=ALICE, limits={"producer_byte_rate": None})
    _, (write,) = alter_quotas(view, [gone], entities_max=1)
    assert write.deletes == (quota_key(ALICE),)


def test_refused_changes_write_nothing() -> None:
    wrong = QuotaChange(entity=ALICE, limits={"producer_byte_rate": 5.0, "consumer_byte_rate": 0.0})
    (result,), writes = alter_quotas(read_view({}), [wrong], entities_max=1)
    assert isinstance(result, InvalidRequest)
    assert not writes


def test_there_are_at_most_so_many_quotas() -> None:
    changes = [QuotaChange(entity=one, limits={"producer_byte_rate": 5.0}) for one in (ALICE, BOTH)]
    (first, second), _ = alter_quotas(read_view({}), changes, entities_max=1)
    assert first is None
    assert isinstance(second, PolicyViolation)
