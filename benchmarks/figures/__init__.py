"""The tables of docs/figures, all measured and written by ``python -m benchmarks.figures``."""
