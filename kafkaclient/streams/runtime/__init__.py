"""Tasks at work: what they are at the moment, what they read and write, who tells them."""
