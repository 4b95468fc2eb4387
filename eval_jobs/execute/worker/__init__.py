"""One worker process: claims plans, carries them out, stores the records."""
