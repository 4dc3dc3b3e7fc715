"""One TCP connection: how it is made, and the requests that travel on it."""

from kafkaclient.compiled_modules import choose_native

choose_native()
