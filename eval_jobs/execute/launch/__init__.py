"""How worker processes are started."""
