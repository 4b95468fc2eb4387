"""Processes that are forked from one without threads that has everything imported, so that dozens cost no second."""

import multiprocessing

FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["tests.commands", "tests.watchers", "tests.small_world"])
