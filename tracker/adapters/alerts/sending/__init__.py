"""Shared by the channels: HTTP requests, timeouts, Markdown, responses."""
