"""Kafka's names for a partition's files."""

from respool.log.file_names import (
    FILE_NAME_BYTES_MAX,
    LOG,
    deleted_folder_name,
    offset_name,
    parse_offset_name,
)
from respool.model.ids import Offset


def test_a_name_is_twenty_digits_and_the_kind() -> None:
    assert offset_name(Offset(42), LOG) == "00000000000000000042.log"
    assert parse_offset_name("00000000000000000042.log") == (42, ".log")
    assert parse_offset_name(offset_name(Offset(2**63 - 1), LOG)) == (2**63 - 1, ".log")


def test_other_files_are_not_taken_for_ours() -> None:
    for name in (
        "leader-epoch-checkpoint",
        "partition.metadata",
        "0042.log",
        "00000000000000000042",
        "00000000000000000042.log.deleted",
        "x00000000000000000042.log",
    ):
        assert parse_offset_name(name) is None, name


def test_a_deleted_folder_keeps_its_name_as_far_as_it_fits() -> None:
    name = deleted_folder_name("rides-0", attempt=0)
    assert name.startswith("rides-0.")
    assert name.endswith("-delete")
    assert len(name.removeprefix("rides-0.").removesuffix("-delete")) == 32
    assert deleted_folder_name("rides-0", attempt=1) != name
    assert len(deleted_folder_name("t" * 249 + "-0", attempt=0)) == FILE_NAME_BYTES_MAX
