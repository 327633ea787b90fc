"""Which versions of etcd are known to be good."""

import pytest

from respool.drivers.etcd_member import is_known_good


@pytest.mark.parametrize(
    "version", ["3.5.30", "3.5.31", "3.6.11", "3.6.20", "3.7.0", "4.0.0", "3.7.0-rc.1"]
)
def test_lines_are_good_from_their_first_good_patch_on(version: str) -> None:
    assert is_known_good(version)


@pytest.mark.parametrize(
    "version",
    [
        "3.4.42",
        "3.5.0",
        "3.5.29",
        "3.6.0",
        "3.6.10",
        "2.3.8",
        "3.6.0-rc.3",
        "3.5.30-alpha",
        "",
        "new",
        "3.5",
    ],
)
def test_what_comes_before_or_is_no_version_is_not(version: str) -> None:
    assert not is_known_good(version)
