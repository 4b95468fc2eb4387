"""Names of this machine, for which a proxy from the environment is never used. Pure."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""As in a URL's host name, or in NO_PROXY."""
