"""How worker processes are started: one module for each place, each a `Launcher` that `Project.workers` returns."""
