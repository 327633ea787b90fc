"""The table of request versions fits what our brokers serve, and names every request that clients send."""

import pytest

from respool.client.kafka.versions import (
    TRANSACTIONS_V1,
    TRANSACTIONS_V2,
    VERSIONS,
    SaslApi,
    VersionRange,
)
from respool.wire.api_table import API_TABLE, Api


@pytest.mark.parametrize("api", [one for one in VERSIONS if isinstance(one, Api)])
def test_our_brokers_serve_the_newest_version_of_every_request(api: Api) -> None:
    oldest, newest = VERSIONS[api]
    assert oldest <= newest
    assert API_TABLE[api].serves(newest)


def test_requests_of_a_login_are_not_those_that_our_brokers_serve() -> None:
    assert not {int(one) for one in SaslApi} & set(API_TABLE)


@pytest.mark.parametrize("versions", [TRANSACTIONS_V1, TRANSACTIONS_V2])
def test_how_transactions_are_done_only_narrows_a_range(
    versions: tuple[VersionRange, VersionRange, VersionRange],
) -> None:
    for api, narrow in zip(
        (Api.PRODUCE, Api.TXN_OFFSET_COMMIT, Api.END_TXN), versions, strict=True
    ):
        assert VERSIONS[api].oldest <= narrow.oldest <= narrow.newest <= VERSIONS[api].newest
