"""What `tracker` loads when it is first used, for editors and type checkers."""

from eval_jobs.errors import ConfigError as ConfigError
from eval_jobs.errors import StoreError as StoreError
from eval_jobs.errors import TrackerError as TrackerError
from tracker.api.acting import Evaluation as Evaluation
from tracker.api.answers import Comparison as Comparison
from tracker.api.answers import Gate as Gate
from tracker.api.project import Project as Project
from tracker.api.results import open as open
from tracker.api.results import schema as schema
from tracker.api.samples import Samples as Samples

__all__ = [
    "Comparison",
    "ConfigError",
    "Evaluation",
    "Gate",
    "Project",
    "Samples",
    "StoreError",
    "TrackerError",
    "open",
    "schema",
]
