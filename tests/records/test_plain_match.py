from records.match_contract import MatcherContract
from respool.records.plain_match import PlainMatcher


class TestPlainMatcher(MatcherContract):
    matcher = PlainMatcher
