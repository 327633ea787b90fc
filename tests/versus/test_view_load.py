from bench.versus.view_load import TAGS, tagged_batches

from respool.records.batch import RecordBatch, read_header
from respool.records.record import read_records


def test_the_tags_that_are_counted_are_those_in_the_records() -> None:
    for batch, tags in tagged_batches(20):
        header = read_header(batch.data)
        records = read_records(RecordBatch(header, batch.data), limit=1 << 20)
        found = [dict(one.headers)["tag"] for one in records]
        assert len(found) == batch.messages
        assert [tag.decode() for tag in found if tag and tag.decode() in TAGS] == tags
