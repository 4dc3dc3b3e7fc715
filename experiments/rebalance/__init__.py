"""An instance joins a large group."""
