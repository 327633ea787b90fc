"""The table of request versions fits what our brokers serve, and names every request that clients send."""

import pytest

from respool.client.kafka.versions import (
    TRANSACTIONS_V1,
    TRANSACTIONS_V2,
    VERSIONS,
    VersionRange,
)
from respool.wire.api_table import API_TABLE, Api


@pytest.mark.parametrize("api", VERSIONS)
def test_our_brokers_serve_the_newest_version_of_every_request(api: Api) -> None:
    oldest, newest = VERSIONS[api]
    assert oldest <= newest
    assert API_TABLE[api].serves(newest)


@pytest.mark.parametrize("versions", [TRANSACTIONS_V1, TRANSACTIONS_V2])
def test_how_transactions_are_done_only_narrows_a_range(
    versions: tuple[VersionRange, VersionRange, VersionRange],
) -> None:
    for api, narrow in zip(
        (Api.PRODUCE, Api.TXN_OFFSET_COMMIT, Api.END_TXN), versions, strict=True
    ):
        assert VERSIONS[api].oldest <= narrow.oldest <= narrow.newest <= VERSIONS[api].newest
