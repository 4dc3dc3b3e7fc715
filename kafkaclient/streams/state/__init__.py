"""A task's state on disk: its store, its checkpoint and the locked directory."""
