"""What the tracker needs from the outside world. Each docstring states the rules that an adapter must obey.

A use case depends on the narrowest port that it needs. One adapter may implement several ports.
"""

from tracker.ports.alerts import Alerting, AlertSender, Notifier
from tracker.ports.checkpoints import CheckpointSource, CurveReader, HeldPin, Pins
from tracker.ports.health import HealthStore, TrainingHistory, TrainingLog
from tracker.ports.history import (
    AlertStore,
    CalibrationStore,
    EventLog,
    GapStore,
    History,
    IncidentStore,
    JudgedRecordStore,
    MeasurementStore,
    RecordStore,
    ReportStore,
    RunHistory,
    TextStore,
)
from tracker.ports.sweeps import Sweeps
from tracker.ports.tracking import Tracking, TrackingSink
from tracker.ports.watching import Lead, RequestQueue, WatchedQueue

__all__ = [
    "AlertSender",
    "AlertStore",
    "Alerting",
    "CalibrationStore",
    "CheckpointSource",
    "CurveReader",
    "EventLog",
    "GapStore",
    "HealthStore",
    "HeldPin",
    "History",
    "IncidentStore",
    "JudgedRecordStore",
    "Lead",
    "MeasurementStore",
    "Notifier",
    "Pins",
    "RecordStore",
    "ReportStore",
    "RequestQueue",
    "RunHistory",
    "Sweeps",
    "TextStore",
    "Tracking",
    "TrackingSink",
    "TrainingHistory",
    "TrainingLog",
    "WatchedQueue",
]
