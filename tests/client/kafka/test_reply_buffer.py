"""Memory that replies are received into."""

from respool.client.kafka.reply_buffer import ReplyBuffer


def test_a_kept_buffer_serves_one_reply_after_the_other_and_large_ones_are_let_go() -> None:
    buffer = ReplyBuffer(keep_bytes_max=100)
    first = buffer.room(50)
    first[0] = 1
    assert buffer.room(40)[0] == 1
    assert len(buffer.room(100)) == 100
    large = buffer.room(101)
    large[0] = 7
    assert buffer.room(100)[0] != 7
