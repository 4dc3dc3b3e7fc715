"""One TCP connection: how it is made, and the requests that travel on it."""
