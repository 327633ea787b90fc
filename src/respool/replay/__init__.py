"""Replays of a topic's history: `respool replay` and `respool.start_replay` start them through `start.py`."""
