"""Checks that the answers of a database's history are in the folder that this process uses."""

from pathlib import Path

from sqlalchemy import Engine, and_, select

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import belongs_to, transaction
from tracker.adapters.history.tables_sql import RECORDS
from tracker.adapters.samples.packed_parquet import NO_SAMPLES
from tracker.domain.records.display import count_text


def demand_samples(engine: Engine, samples_dir: Path, run: str) -> None:
    """Refuse a folder without any of the stored samples of `run` and its sub-folders.

    Raises:
        ConfigError: the files of the run are in another folder; with this one no verdict could be computed.
        StoreError: the database cannot be read.
    """
    has_files = and_(RECORDS.c.samples.is_not(None), RECORDS.c.samples != NO_SAMPLES)
    query = select(RECORDS.c.plan_id).where(belongs_to(RECORDS.c.run_id, run), has_files)
    with transaction(engine) as connection:
        plan_ids = connection.scalars(query).all()
    if plan_ids and not any((samples_dir / plan_id).is_dir() for plan_id in plan_ids):
        raise ConfigError(
            f"no answers in {samples_dir} for the {count_text(len(plan_ids), 'result')} of run {run} in the database",
            hint="set run.state_dir to the previous folder, or set another run.name",
        )
