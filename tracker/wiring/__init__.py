"""The composition root: configuration -> adapters -> use cases."""
