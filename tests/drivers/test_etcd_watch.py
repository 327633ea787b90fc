"""A cluster's keys in etcd: hidden behind their prefix, never mixed up."""

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.drivers.etcd_watch import KeySpace

KEYS = st.text(st.sampled_from("/ab\u0448\U0010ffff"), min_size=1, max_size=6).filter(
    lambda key: not key.startswith("//")
)


def test_the_products_keys_are_readable_in_etcd() -> None:
    assert KeySpace("c").stored("/brokers/1") == b"/respool/c/brokers/1"


@settings(deadline=None)
@given(KEYS, KEYS)
def test_keys_come_back_and_differ_as_before(one: str, other: str) -> None:
    keys = KeySpace("c")
    assert keys.seen(keys.stored(one)) == one
    assert (keys.stored(one) == keys.stored(other)) == (one == other)


@settings(deadline=None)
@given(KEYS, st.just("") | KEYS)
def test_a_span_holds_every_key_with_its_prefix(key: str, prefix: str) -> None:
    keys = KeySpace("c")
    first, end = keys.span(prefix)
    is_inside = first <= keys.stored(key) < end
    if key.startswith(prefix):
        assert is_inside
    elif prefix not in {"", "/"}:
        assert not is_inside


@settings(deadline=None)
@given(KEYS)
def test_clusters_do_not_see_each_other(key: str) -> None:
    first, end = KeySpace("c").span("")
    assert not first <= KeySpace("ca").stored(key) < end
    assert not first <= KeySpace("b").stored(key) < end
