"""What a broker makes of the condition in a Fetch."""

from hypothesis import given
from hypothesis import strategies as st

from records.match_contract import conditions
from respool.broker.fetch import reader_condition as module
from respool.broker.fetch.reader_condition import reader_condition
from respool.model.where import TEXT_BYTES_MAX, Where, parse_where


@given(conditions)
def test_a_condition_is_read_as_it_was_sent(where: Where) -> None:
    assert reader_condition(str(where)) == where


@given(st.text() | st.text(alphabet="tag='in(),x ", max_size=30))
def test_any_text_is_a_condition_or_none(text: str) -> None:
    found = reader_condition(text)
    assert found is None or parse_where(str(found)) == found


def test_what_is_not_understood_counts_as_none() -> None:
    for text in ("", "tag = paid", "tag like 'p%'", "absent(tag) and tag = 'a'", "tag = 'a' or x"):
        assert reader_condition(text) is None


def test_no_more_than_a_conditions_size_is_looked_at_or_kept() -> None:
    module._parsed.cache_clear()
    assert reader_condition("tag = '" + "a" * TEXT_BYTES_MAX + "'") is None
    assert module._parsed.cache_info().currsize == 0
    for number in range(1_000):
        reader_condition(f"tag = '{number}'")
    assert module._parsed.cache_info().currsize == module._PARSED_MAX
