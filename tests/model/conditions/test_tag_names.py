import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.conditions.tag_names import NAMES_MAX, TagNames
from respool.model.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        (" ", ()),
        ("tag", ("tag",)),
        ("tag, region,key", ("tag", "region", None)),
        ("tag,tag", ("tag",)),
        ('"key","trace id", "say ""hi"""', ("key", "trace id", 'say "hi"')),
        ("tag,", ("tag",)),
    ],
)
def test_names_are_read(text: str, names: tuple[str | None, ...]) -> None:
    assert TagNames.parse(text).names == names


@pytest.mark.parametrize(
    ("text", "position"), [("tag region", 1), ("tag,,region", 5), ('"tag', 1), ("tag,größe", 5)]
)
def test_what_is_no_name_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(InvalidConfig, match=f"position {position}: expected the name"):
        TagNames.parse(text)


def test_too_many_names_are_refused() -> None:
    text = ",".join(f"n{number}" for number in range(NAMES_MAX))
    assert len(TagNames.parse(text).names) == NAMES_MAX
    with pytest.raises(InvalidConfig, match="17 names"):
        TagNames.parse(f"{text},another")


names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(names, max_size=NAMES_MAX, unique=True).map(tuple))
def test_what_is_printed_can_be_read(names: tuple[str | None, ...]) -> None:
    assert TagNames.parse(str(TagNames(names))).names == names
