"""Which hosts are this machine: a proxy from the environment is for the outside world, never for them. Pure."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""As in a URL's host name, or in NO_PROXY."""
