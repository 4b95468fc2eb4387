"""An endpoint that answers too little: from the real evaluator to the alert, a blind spot and never a score."""

from pathlib import Path

from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.identity import make_plan
from eval_jobs.run import Tools, run_plan
from eval_jobs.types import EvalResult, SampleStatus
from tests.evaluating import endpoint_of, number_of, quiet, right, suite_of, sums
from tests.fakes.engine import FakeEngine
from tests.fakes.openai_server import OpenAIServer, Reply, Request, context_overflow
from tests.fakes.prober import FakeProber
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.review import review
from tracker.domain.records.alerts import AlertState, alert_subject_text
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import VerdictWord

COUNT = 20
REFUSED = 4


def test_too_few_answers_are_a_missing_verdict_that_is_told_as_a_blind_spot(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        return context_overflow() if number_of(request) < REFUSED else right(request)

    fakes = FakeWorld()
    benchmark = sums(tmp_path, COUNT)
    checkpoint = fakes.run.records[0].plan.checkpoint
    plan = make_plan(checkpoint, suite_of(benchmark), fakes.run.records[0].plan.serve, ())
    evaluator = EvalScopeEvaluator(tmp_path / "work")
    with OpenAIServer(answer) as server:
        engine = FakeEngine(endpoint_of(server))
        tools = Tools(engine=engine, evaluator=evaluator, prober=FakeProber(), clock=fakes.clock)
        record = run_plan(plan, tools=tools, progress=quiet)
    evaluator.close()
    (outcome,) = record.outcomes
    assert isinstance(outcome, EvalResult)
    assert [sample.status for sample in outcome.samples].count(SampleStatus.ERROR) == REFUSED

    report = review(fakes.world(), record, fakes.clock.now()).report
    (verdict,) = report.verdicts
    assert verdict.word is VerdictWord.MISSING
    assert verdict.coverage == (COUNT - REFUSED) / COUNT
    assert f"only {COUNT - REFUSED} of {COUNT} samples scored (80.0 %, 95 % required)" in reason_text(verdict)
    assert "maximum context length" in reason_text(verdict)
    (alert,) = fakes.alerting.alerts
    assert (alert_subject_text(alert.subject), alert.state) == ("sums", AlertState.FIRING)
    assert f"only {COUNT - REFUSED} of {COUNT} samples scored" in alert.message
