"""The cases of producing: a star around a base case, each with a name and settings of its own."""

from dataclasses import fields

from bench.versus.produce_rows import BASE, CASES, QUICK_CASES, ClientKind, ProduceCase


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_quick_cases_are_among_all() -> None:
    assert set(QUICK_CASES) <= set(CASES)


def test_the_base_case_leaves_everything_but_acks_to_the_client() -> None:
    assert BASE.settings == {"acks": "all"}


def test_every_dimension_of_the_comparison_is_there() -> None:
    seen = {one.name: {getattr(case, one.name) for case in CASES} for one in fields(ProduceCase)}
    assert seen == {
        "client": set(ClientKind),
        "message_bytes": {100, 1024},
        "acks": {"0", "1", "all"},
        "is_large_batches": {False, True},
        "codec": {"none", "lz4", "zstd"},
        "partitions": {1, 6, 100},
        "producers": {1, 4},
    }
