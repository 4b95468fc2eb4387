"""Part of the composition root: what can be known before evaluations begin, as findings of `tracker doctor`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from eval_jobs.errors import EndpointUnreachable, TrackerError
from eval_jobs.evaluate.common.hub import hub_state, is_reachable
from eval_jobs.evaluate.data.files import check_benchmark
from eval_jobs.evaluate.data.prompt_lengths import read_prompt_lengths
from eval_jobs.queue.database_sql import mapped_database_errors
from eval_jobs.records.preflight import EngineEnvironment, ModelFacts
from eval_jobs.serve.preflight import check_remote_engine, local_model, read_environment, read_model
from eval_jobs.types import Benchmark, EngineKind, ServeSpec, Suite
from tracker.adapters.checkpoints.files.listing import places_in
from tracker.adapters.checkpoints.folder.assessed import Assessed, assessed, newest_assessed
from tracker.adapters.mlflow.address import check_reachable, public
from tracker.config import Config
from tracker.domain.checkpoints.listing import RawKind
from tracker.domain.readiness import checks
from tracker.domain.readiness.finding import Finding, Level, error, finding_of, ok, warning
from tracker.domain.readiness.surroundings import (
    CHECKPOINTS,
    DISK,
    disk_finding,
    empty_finding,
    hub_finding,
    problem_finding,
)
from tracker.domain.records.display import count_text
from tracker.wiring.programs import benchmark_with_version
from tracker.wiring.project import Project, channels_of

LOCAL_ENGINES = (EngineKind.VLLM, EngineKind.SGLANG)


def examine(project: Project, checkpoint: str | None = None, *, has_engine: bool = True) -> tuple[Finding, ...]:
    """Return all findings, within seconds; nothing is started, downloaded or written.

    `checkpoint`: a folder; default: the newest complete checkpoint of the run. Without `has_engine`, no engine runs
    here, and the environment says nothing.
    """
    examination = _Examination(project.config, checkpoint, has_engine=has_engine)
    parts = (examination.measurements, lambda: tuple(_stores(project)))
    with ThreadPoolExecutor(len(parts)) as pool:  # both may wait for other machines
        found = [pool.submit(part) for part in parts]
        return tuple(finding for one in found for finding in one.result())


class _Examination:
    """The checks of the engine, the checkpoint and the benchmarks; later ones use what earlier ones found."""

    def __init__(self, config: Config, checkpoint: str | None, *, has_engine: bool) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._spec = config.serve.to_spec()
        self._has_engine = has_engine and self._spec.engine in LOCAL_ENGINES
        self._found: list[Finding] = []
        self._reachable = cache(is_reachable)
        """Contacts each hub once."""

    def measurements(self) -> tuple[Finding, ...]:
        """Return the findings in the order of an evaluation."""
        engine, one = self._engine(), self._assessed()
        model = None if one is None else self._model(one)
        # The digests of data files are not needed here: reading them can take long.
        suite = self._config.to_suite({one.resolved_name(): "unread" for one in self._config.benchmark})
        if model is not None:
            self._found += checks.model_findings(model, engine, self._spec, suite.benchmarks)
        for benchmark in suite.benchmarks:
            self._benchmark(benchmark, suite, model)
        self._disk(one)
        return tuple(self._found)

    def _engine(self) -> EngineEnvironment | None:
        if self._spec.engine is EngineKind.REMOTE:
            self._found.append(_endpoint(self._spec))
        if not self._has_engine:
            return None
        try:
            found = read_environment(self._spec)
        except TrackerError as failure:
            self._found.append(finding_of(checks.ENGINE, failure))
            return None
        self._found += checks.engine_findings(found, self._spec)
        return found

    def _model(self, one: Assessed) -> ModelFacts | None:
        """Return the facts about the checkpoint if a local engine would serve it."""
        if one.complete is None or self._spec.engine not in LOCAL_ENGINES:
            return None
        if one.complete.raw is RawKind.OTHER:
            self._found.append(ok(checks.MODEL, f"{one.path} is converted by watch.convert"))
            return None
        base = one.complete.base_model or one.complete.config_from
        folder = local_model(base) if base else None
        if base and folder is None:
            is_offline = os.environ.get("HF_HUB_OFFLINE", "1") != "0"
            is_path = Path(base).is_absolute()
            self._found.append(checks.base_finding(base, str(one.path), is_path=is_path, is_offline=is_offline))
            return None
        return read_model(one.path, weights_bytes=one.weights_bytes, base=folder)

    def _assessed(self) -> Assessed | None:
        """Return the named checkpoint, or the newest complete one of the run."""
        run, options = self._config.run, self._config.watch.to_options()
        if self._checkpoint is not None and "://" not in self._checkpoint:
            one = assessed(Path(self._checkpoint), options)
            self._note_problem(one, is_wanted=True)
            return one
        if self._checkpoint is not None or run.is_bucket or run.source:
            self._found.append(ok(CHECKPOINTS, f"those of {run.output_dir} are checked when they are evaluated"))
            return None
        folder = Path(run.output_dir)
        is_folder = {entry.name: entry.is_dir() for entry in folder.iterdir()} if folder.is_dir() else None
        places = places_in(folder, run_name="", pattern=options.pattern, skip=run.state_dir) if is_folder else ()
        if not places:
            self._found.append(empty_finding(str(folder), options.pattern, is_folder))
            return None
        newest, complete = newest_assessed(places, options)
        self._note_problem(newest, is_wanted=False)
        return complete

    def _note_problem(self, one: Assessed, *, is_wanted: bool) -> None:
        if one.problem is not None:
            self._found.append(problem_finding(str(one.path), one.problem, is_wanted=is_wanted))

    def _benchmark(self, benchmark: Benchmark, suite: Suite, model: ModelFacts | None) -> None:
        try:
            known = benchmark_with_version(benchmark, self._config.suite.lm_eval)
            notes = check_benchmark(known) if known.program is None else ()
        except TrackerError as failure:
            self._found.append(finding_of(checks.benchmark_subject(benchmark), failure))
            return
        self._found += (warning(checks.benchmark_subject(benchmark), note, checks.ODD_ROWS) for note in notes)
        if benchmark.program is None and benchmark.data is None:
            hub = hub_state(benchmark.adapter, suite.dataset_hub, self._config.run.work_dir, reachable=self._reachable)
            self._found.append(hub_finding(checks.benchmark_subject(benchmark), hub))
            if self._found[-1].level is Level.ERROR:
                return
        if model is None and benchmark.data is not None:
            self._found.append(ok(checks.benchmark_subject(benchmark), f"{benchmark.data} is readable"))
        if model is not None:
            tokenizer = Path(model.tokenizer) if model.tokenizer else None
            lengths = read_prompt_lengths(benchmark, tokenizer) if tokenizer is not None else None
            self._found.append(checks.length_finding(lengths, benchmark, suite, model, self._spec))

    def _disk(self, one: Assessed | None) -> None:
        place = self._config.run.state_dir
        while not place.exists():
            place = place.parent
        if not os.access(place, os.W_OK):
            self._found.append(error(DISK, f"cannot write to {place}", "set run.state_dir to another folder"))
            return
        is_copied = one is not None and one.path.exists() and one.path.stat().st_dev != place.stat().st_dev
        copy_bytes = one.weights_bytes if one is not None and is_copied else 0
        self._found.append(disk_finding(str(place), free_bytes=shutil.disk_usage(place).free, copy_bytes=copy_bytes))


def _endpoint(spec: ServeSpec) -> Finding:
    """Return whether a remote server responds; one that is away for a moment only gets a warning."""
    try:
        check_remote_engine(spec)
    except EndpointUnreachable as failure:
        return finding_of(checks.ENGINE, failure, Level.WARNING)
    except TrackerError as failure:
        return finding_of(checks.ENGINE, failure)
    return ok(checks.ENGINE, f"{spec.base_url} responds")


def _stores(project: Project) -> Iterator[Finding]:
    tracking = project.config.tracking
    yield _checked("database", lambda: _database(project))
    if tracking.enabled:
        yield _checked("MLflow", lambda: _mlflow(project), Level.WARNING)
    yield _checked("notifications", lambda: count_text(len(channels_of(project.config)), "channel"))


def _checked(subject: str, check: Callable[[], str], level: Level = Level.ERROR) -> Finding:
    try:
        return ok(subject, check())
    except TrackerError as failure:
        return finding_of(subject, failure, level)


def _database(project: Project) -> str:
    """Connect to the database; a SQLite file is created when watching begins."""
    path = project.config.run.state_dir / "tracker.db"
    if project.config.store.database or path.exists():
        with mapped_database_errors(project.database):
            project.database.connect().close()
        return project.config.store.database or str(path)
    return f"{path} (not created yet)"


def _mlflow(project: Project) -> str:
    uri = project.mlflow.uri
    if project.config.tracking.uri:
        check_reachable(uri)
    return public(uri)
