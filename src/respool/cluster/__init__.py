"""Decides the controller's writes and a broker's session: turns a view of the store into guarded writes. No I/O.

- `controller_decisions.py` decides what is due: elections, steps of reassignments, repair. `topic_requests.py`,
  `partition_requests.py`, `broker_requests.py` and `replica_balance.py` decide requests.
- `image_reader.py` decodes the store (`keys.py`) to the image; `view.py` is an image with the context of a decision.
- `session.py` is a broker's lease, registration and shutdown; `own_replicas.py` its writes about its own replicas.
"""
