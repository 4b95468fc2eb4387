"""Adapters behind the ports: each file wraps one external library."""
