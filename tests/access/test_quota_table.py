"""The most specific quota applies, for each limit by itself."""

from hypothesis import given
from hypothesis import strategies as st

from respool.access.quota_table import address_limit, quota_of
from respool.model.security.quota import QuotaEntity, QuotaImage, StoredQuota, checked_entity

LIMIT = "producer_byte_rate"

# Kafka's order, most specific first, for user `u` and client id `c`.
ORDER: list[QuotaEntity] = [
    checked_entity(parts)
    for parts in (
        [("user", "u"), ("client-id", "c")],
        [("user", "u"), ("client-id", None)],
        [("user", "u")],
        [("user", None), ("client-id", "c")],
        [("user", None), ("client-id", None)],
        [("user", None)],
        [("client-id", "c")],
        [("client-id", None)],
    )
]
BUCKETS = [
    ("u", "c"),
    ("u", "c"),
    ("u", None),
    ("u", "c"),
    ("u", "c"),
    ("u", None),
    (None, "c"),
    (None, "c"),
]


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_the_first_entity_of_the_order_that_has_the_limit_applies(
    with_it: set[int], with_another: set[int]
) -> None:
    quotas: dict[QuotaEntity, StoredQuota] = {}
    for number in with_it | with_another:
        limits = {LIMIT: 100.0 + number} if number in with_it else {"consumer_byte_rate": 1.0}
        quotas[ORDER[number]] = StoredQuota(limits)
    found = quota_of(QuotaImage(by_entity=quotas), LIMIT, user="u", client_id="c")
    if not with_it:
        assert found is None
        return
    first = min(with_it)
    assert found is not None
    assert found.rate == 100.0 + first
    assert (found.user, found.client_id) == BUCKETS[first]


def test_others_have_none_of_it() -> None:
    quotas = QuotaImage(by_entity={ORDER[0]: StoredQuota({LIMIT: 1.0})})
    assert quota_of(quotas, LIMIT, user="u", client_id="d") is None
    assert quota_of(quotas, LIMIT, user="v", client_id="c") is None


def test_long_client_ids_share_a_bucket() -> None:
    """Trap: clients make client ids up."""
    quotas = QuotaImage(by_entity={ORDER[7]: StoredQuota({LIMIT: 1.0})})
    found = {
        quota_of(quotas, LIMIT, user="u", client_id=f"{'x' * 300}{number}") for number in range(9)
    }
    assert len(found) == 1


def test_an_address_has_its_own_limit_or_the_default() -> None:
    rate = "connection_creation_rate"
    quotas = QuotaImage(
        by_entity={
            (("ip", "10.0.0.1"),): StoredQuota({rate: 5.0}),
            (("ip", None),): StoredQuota({rate: 2.0}),
        }
    )
    assert address_limit(quotas, rate, "10.0.0.1") == 5.0
    assert address_limit(quotas, rate, "10.0.0.2") == 2.0
    assert address_limit(QuotaImage(), rate, "10.0.0.2") is None
