"""An accepted level ends the loss in every view at once: verdicts, headline, MLflow and alerts."""

from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.commands.accept import accept
from tracker.domain.overview.run import overview
from tracker.domain.overview.standings import headline
from tracker.domain.records.losses import Acceptance


def test_accepting_a_level_replaces_the_verdicts_from_its_step_on() -> None:
    fakes = FakeWorld()
    for record in fakes.run.records:
        fakes.source.put(record.plan.checkpoint)
    fakes.tick()
    fakes.work()
    fakes.tick()
    run_id = fakes.run.run_id
    assert headline(overview(fakes.history.reports(run_id))).startswith("facts and sums were forgotten")
    now, reason = fakes.clock.now(), "the mix changed"
    accepted = Acceptance(run_id=run_id, step=1000, from_step=1000, benchmark="facts", reason=reason, accepted_at=now)
    accept(fakes.world(), accepted)
    reports = fakes.history.reports(run_id)
    assert headline(overview(reports)).startswith("sums was forgotten after step 600; reversal improved")
    assert [alert.subject.name for alert in fakes.history.open_alerts(run_id)] == ["sums"]
    fakes.tracking.flush()
    assert reports[-1] in [report for _, report in fakes.tracking.records]
