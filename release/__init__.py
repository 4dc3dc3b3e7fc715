"""Checks of what is released: wheels, the sdist, extras, types (docs/how-to/install.md)."""
