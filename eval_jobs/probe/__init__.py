"""Latency measurement."""
