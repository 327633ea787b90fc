"""Bytes and messages in and out of a topic: plain numbers, counted per batch and read at a scrape."""


class TopicTraffic:
    __slots__ = ("bytes_in", "bytes_out", "labels", "messages_in", "messages_out")

    def __init__(self, topic: str) -> None:
        self.labels = (topic,)
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.messages_out = 0
