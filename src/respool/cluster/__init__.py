"""The controller: from one view of the metadata store to guarded writes. Pure: no clock, no I/O.

- `controller.py` decides what is due by itself: elections, steps of moves, repair; everything else is asked for:
- `topics.py`, `reassignment_requests.py`, `leader_requests.py`, `broker_requests.py`, `balance.py`.
- `session.py` is a broker's own part: when it may act, how it registers and stops.
"""
