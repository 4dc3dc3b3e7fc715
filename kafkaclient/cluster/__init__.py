"""Who leads what, and how to reach them."""
