"""respool.table.*: what a topic may be given, and what contradicts itself."""

import pytest

from respool.model.errors import InvalidConfig
from respool.model.tables.table_settings import table_settings_of
from respool.model.tables.value_schema import ValueKind, parse_value_schema
from respool.model.topic_config import WITHOUT_DEFAULT, TopicConfig


def test_a_topic_is_a_table_by_its_settings() -> None:
    config = TopicConfig.parse(
        {
            "respool.table": "iceberg",
            "respool.table.location": "s3://lake/rides/",
            "respool.table.catalog": "rest:https://catalog:8181",
            "respool.table.schema": "declared: fare double , city string",
        }
    )
    assert config.respool_table_location == "s3://lake/rides"
    assert config.as_text["respool.table.schema"] == "declared:fare double , city string"
    assert table_settings_of({**config.as_text, "retention.ms": "1"}).respool_table == "iceberg"
    assert TopicConfig.parse(dict(config.as_text)) == config


def test_defaults_of_a_broker_make_no_tables() -> None:
    assert "respool.table" in WITHOUT_DEFAULT
    assert "respool.table.location" in WITHOUT_DEFAULT


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"": "delta"}, "needs respool.table.location"),
        ({"": "delta", ".location": "lake"}, "neither a URL"),
        ({"": "delta", ".location": "s3://key:secret@lake/rides"}, "contains credentials"),
        ({"": "delta", ".location": "/lake", ".catalog": "glue"}, "is for Iceberg"),
        ({"": "iceberg", ".location": "s3://lake/rides"}, "needs respool.table.catalog"),
        ({"": "iceberg", ".location": "/lake", ".catalog": "sql:x"}, "is not one of"),
        (
            {"": "delta", ".location": "/lake", ".schema": "registry"},
            "needs respool.table.registry",
        ),
        ({".schema": "declared:id uuid"}, "no type 'uuid'"),
        ({".schema": "csv"}, "is not one of"),
        ({".schema": "avro:{"}, "not JSON"),
        ({".interval.ms": "1"}, "outside 100"),
        ({".name": "a b"}, "is not NAME"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        TopicConfig.parse({f"respool.table{name}": value for name, value in settings.items()})


@pytest.mark.parametrize("text", ["raw", "infer", "registry", "registry:latest", "declared:a int"])
def test_a_schema_is_printed_as_it_was_given(text: str) -> None:
    assert str(parse_value_schema(text)) == text


def test_a_schema_knows_what_it_needs() -> None:
    assert parse_value_schema("registry:latest").uses_registry
    assert parse_value_schema("infer").evolves
    assert not parse_value_schema("declared:a int").evolves
    assert parse_value_schema('avro:"long"').kind is ValueKind.AVRO
