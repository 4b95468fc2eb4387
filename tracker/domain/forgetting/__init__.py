"""The forgetting ledger of a run: how much of what it had learned is lost, and which samples. Pure."""
