"""The forgetting ledger of a run: how much of what was once known is gone, and which samples are lost. Pure."""
