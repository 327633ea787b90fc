import pytest

from respool.coordination.java_hash import java_string_hash, partition_for


# Values from Java's String.hashCode.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("pricing", -315056186),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_smallest_hash_goes_to_partition_zero_since_java_has_no_absolute_value_for_it() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_group_always_has_the_same_partition_within_the_count() -> None:
    for group in ("pricing", "fraud", "warehouse", "ü", "\U0001f600", "a" * 1000):
        assert 0 <= partition_for(group, 50) < 50
        assert partition_for(group, 50) == partition_for(group, 50)
