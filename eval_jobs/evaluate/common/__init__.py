"""Shared by all evaluation harnesses: the child process, requests to it, reading of results."""
