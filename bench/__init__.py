"""Figures and ratios of a running broker; nothing is asserted. `make bench` runs it; see `docs/benchmarks.md`."""
