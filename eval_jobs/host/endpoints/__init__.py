"""Responses of endpoints that anybody may run: what is read of them, and what is kept."""
