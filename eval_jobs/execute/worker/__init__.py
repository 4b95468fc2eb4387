"""One worker process: claims plans, carries them out, hands in the records."""
