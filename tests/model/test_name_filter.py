import pytest

from respool.model.name_filter import NameFilter


@pytest.mark.parametrize(
    ("allow", "deny", "passing"),
    [
        ("*", "", ["rides", "Rides", "fares", "__consumer_offsets", "a\nb"]),
        ("*", "__*,fares", ["rides", "Rides", "a\nb"]),
        ("rides , f*", "", ["rides", "fares"]),
        ("[rR]ides", "", ["rides", "Rides"]),
        ("", "", []),
    ],
)
def test_a_name_passes_that_is_allowed_and_not_denied(
    allow: str, deny: str, passing: list[str]
) -> None:
    names = ["rides", "Rides", "fares", "__consumer_offsets", "a\nb"]
    chosen = NameFilter(allow=allow, deny=deny)
    assert [one for one in names if chosen.passes(one)] == passing
