"""Builds the documentation site: the pages that are written from the code, and mkdocs' hooks."""
