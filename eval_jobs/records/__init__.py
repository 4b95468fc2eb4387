"""Records that flow through the system, by what they describe; `eval_jobs.types` gathers the common ones."""
