"""Measures what five tasks cost a model by four ways, and shows it in `docs/benchmarks.md`."""
