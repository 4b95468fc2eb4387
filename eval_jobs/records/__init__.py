"""Records that flow through the system, by what they describe; `eval_jobs.types` re-exports the common ones."""
