"""What a task keeps on disk: its store, how far that is, and whose directory it is."""
