"""Launchers of worker processes: one module for each place, each with a `Launcher` that `Project.workers` returns."""
