"""Kafka's settings: what one node must be told, and nothing that would tune it."""

from pathlib import Path

from bench.versus.kafka_process import settings_text


def test_a_node_of_both_roles_is_told_where_it_is_and_nothing_about_speed() -> None:
    text = settings_text(folder=Path("/data/logs"), port=1, quorum_port=2)
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["process.roles"] == "broker,controller"
    assert settings["log.dirs"] == "/data/logs"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    tuning = ("threads", "buffer", "flush", "segment", "retention", "compression", "max.bytes")
    assert not [name for name in settings if any(word in name for word in tuning)]
