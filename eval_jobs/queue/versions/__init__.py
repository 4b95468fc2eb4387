"""Versions of the queue's tables, one script each; `eval_jobs.queue.migrate_sql` runs the missing ones."""
