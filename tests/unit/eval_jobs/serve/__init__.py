"""Tests of eval_jobs.serve."""
