"""Checks of what is released: wheels, the sdist, extras, types (docs/get-started/install.md)."""
