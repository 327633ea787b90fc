import pytest
from kio.schema.index import api_key_map

from respool.wire.api_table import API_TABLE, Api
from respool.wire.schema import load_request_class, response_class
from wire.entities import SERVED


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_served_version_has_schemas_for_request_and_reply(key: int, version: int) -> None:
    assert load_request_class(key, version).__version__ == version
    assert response_class(key, version).__version__ == version


def test_names_and_keys_are_kafkas() -> None:
    for key, spec in API_TABLE.items():
        assert spec.key == key
        assert spec.name.lower() == api_key_map[key].replace("_", "")
        assert spec.key.name.replace("_", "").lower() == spec.name.lower()
    assert set(API_TABLE) == set(Api)


def test_ranges_are_never_empty_and_only_produce_advertises_more_than_is_served() -> None:
    # aiokafka asserts min <= max.
    for spec in API_TABLE.values():
        assert 0 <= spec.advertised_min <= spec.version_min <= spec.version_max
        assert spec.advertised_min == spec.version_min or spec.key is Api.PRODUCE
    # KAFKA-18659: librdkafka before 2.11.1 needs to see 0.
    assert API_TABLE[Api.PRODUCE].advertised_min == 0


def test_zstd_can_be_written_and_read() -> None:
    # librdkafka silently stores uncompressed batches otherwise.
    assert API_TABLE[Api.PRODUCE].version_max >= 7
    assert API_TABLE[Api.FETCH].version_max >= 10


def test_a_version_outside_the_range_is_not_served() -> None:
    produce = API_TABLE[Api.PRODUCE]
    assert [version for version in range(-1, 15) if produce.serves(version)] == list(range(3, 14))
