"""Replays of a topic's history: `start.py` starts them, `respool replay` and `respool.start_replay` call it."""
