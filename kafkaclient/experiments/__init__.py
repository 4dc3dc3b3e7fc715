"""Measured runs: one load loop, adapters for several clients, and what is made of the figures."""
