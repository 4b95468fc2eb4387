"""How worker processes are started: one module for each place, each a `Launcher`; `Project.workers` chooses."""
