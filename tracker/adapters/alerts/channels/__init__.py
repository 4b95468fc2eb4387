"""One file for each service that carries alerts to people; `opening` chooses."""
