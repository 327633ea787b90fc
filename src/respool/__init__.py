"""Respool: a message broker that can replay history."""

__version__ = "0.1.0"
