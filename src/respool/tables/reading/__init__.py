"""Reads of tables, and of tables with the log behind them."""
