"""Processes that are forked from one without threads that has everything imported, so that dozens cost no second."""

import multiprocessing
import os

os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
"""The thread of Arrow's allocator would hold a lock in the moment of some fork, which then never ends."""

FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["tests.commands", "tests.watchers", "tests.small_world"])
