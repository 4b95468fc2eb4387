"""Engines that serve a checkpoint."""
