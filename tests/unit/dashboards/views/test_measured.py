from dataclasses import replace

from dashboards.views.measured import measured, plans_with_counts, with_keys_hidden, without_user
from eval_jobs.errors import ServerDied
from eval_jobs.run import record_of_failure
from eval_jobs.types import EngineKind, EvalResult, Generation, SampleStatus, ServeSpec
from tests.records import forgetting_run
from tests.reports import run_data

RUN = forgetting_run()
DATA = run_data(RUN)


def _facts(**changes: object) -> dict[str, str]:
    return dict(measured(replace(DATA, **changes)).facts)  # type: ignore[arg-type]


def test_how_a_run_was_measured_is_said_in_words() -> None:
    assert _facts() == {
        "Suite": "skills, 8 requests in flight, timeout 120 s",
        "Generation": "greedy, top_p 1, at most 16 tokens, seed 0",
        "Engine": "vllm 0.32.1",
        "Served with": "dtype float32, context 128 tokens",
        "Weights loaded": "10 cold",
        "Time per checkpoint, median": "32.8 s: loading 22.2 s, scoring 9.6 s, latency test 2.1 s",
    }


def test_code_that_was_trusted_and_weights_that_were_unpickled_are_shown_with_their_steps() -> None:
    plans = [record.plan for record in DATA.records]
    plans[1] = replace(plans[1], serve=replace(plans[1].serve, trust_remote_code=True))
    for index in (2, 3):
        plans[index] = replace(plans[index], checkpoint=replace(plans[index].checkpoint, unpickled=True))
    records = tuple(replace(record, plan=plan) for record, plan in zip(DATA.records, plans, strict=True))
    facts = _facts(records=records)
    assert facts["Checkpoint code"] == "trusted (serve.trust_remote_code), step 200"
    assert facts["Pickled weights"] == "unpickled (watch.allow_pickle), steps 300 and 400"


def test_an_endpoint_of_others_trusts_nothing_by_our_setting() -> None:
    serve = ServeSpec(engine=EngineKind.REMOTE, base_url="http://x/v1", trust_remote_code=True)
    records = tuple(replace(r, plan=replace(r.plan, serve=serve)) for r in DATA.records)
    assert "Checkpoint code" not in _facts(records=records)


def test_benchmarks_name_their_samples_and_fingerprints() -> None:
    rows = measured(DATA).benchmarks
    assert [(r.name, r.adapter, r.metric, r.samples, r.settings, r.changed_at) for r in rows] == [
        (name, "exact", "exact_match", "80", "", ()) for name in ("facts", "sums", "reversal")
    ]
    assert all(outcome.fingerprint.startswith(row.fingerprint)
               for row, outcome in zip(rows, RUN.records[0].outcomes, strict=True))  # fmt: skip


def test_what_was_measured_otherwise_is_named_with_the_step() -> None:
    record = DATA.records[4]
    settings = replace(record, outcomes=(replace(record.outcomes[0], fingerprint="other"), *record.outcomes[1:]))
    serving = replace(record, plan=replace(record.plan, serve=replace(record.plan.serve, dtype="bfloat16")))
    found = [measured(replace(DATA, records=(*DATA.records[:4], new))).benchmarks for new in (settings, serving)]
    assert [[row.changed_at for row in rows] for rows in found] == [[(500,), (), ()], [(500,), (500,), (500,)]]


def test_what_changed_without_effect_on_scores_is_named_and_starts_nothing() -> None:
    records = tuple(
        replace(record, plan=replace(record.plan, serve=replace(record.plan.serve, port=record.plan.checkpoint.step)))
        for record in DATA.records
    )
    assert all(row.changed_at == () for row in measured(replace(DATA, records=records)).benchmarks)
    text = _facts(records=records)["Changed without effect on scores"]
    assert text.startswith("4 earlier changes, step 600: serve.port is 600, was 500, step 700: ")
    assert "Changed without effect on scores" not in _facts()


def test_only_the_newest_result_of_each_benchmark_is_counted() -> None:
    steps = {record.plan.id: record.plan.checkpoint.step for record in RUN.records}
    assert [steps[plan_id] for plan_id in plans_with_counts(DATA)] == [1000]
    third = replace(DATA, records=DATA.records[:3])  # where sums failed
    assert [steps[plan_id] for plan_id in plans_with_counts(third)] == [300, 200]
    assert plans_with_counts(replace(DATA, records=())) == ()


def test_an_engine_that_changed_is_named_with_the_step() -> None:
    record = DATA.records[4]
    assert record.engine is not None
    newer = replace(record, engine=replace(record.engine, version="0.33.0"))
    records = (*DATA.records[:4], newer, *DATA.records[5:])
    assert _facts(records=records)["Engine"] == "vllm 0.32.1 from step 100, vllm 0.33.0 from step 500"


def test_a_run_that_was_never_served_has_no_times() -> None:
    failed = record_of_failure(
        DATA.records[0].plan,
        ServerDied("it died", hint="see the log"),
        started_at=DATA.records[0].started_at,
        finished_at=DATA.records[0].finished_at,
    )
    facts = _facts(records=(failed,))
    assert facts["Engine"] == "failed to start"
    assert facts["Weights loaded"] == "1 failed"
    assert facts["Time per checkpoint, median"] == "-"
    assert measured(replace(DATA, records=(failed,))).benchmarks[0].samples == "-"


def test_nothing_measured_is_nothing_said() -> None:
    empty = measured(replace(DATA, records=()))
    assert (empty.facts, empty.benchmarks) == ((), ())


def test_sampling_and_other_settings_are_said() -> None:
    record = DATA.records[-1]
    suite = record.plan.suite
    benchmark = replace(
        suite.benchmarks[0], limit=50, few_shot=3, repeats=4, subsets=("a", "b"), higher_is_better=False, max_tokens=9
    )
    generation = Generation(temperature=0.7, top_k=40, top_p=0.9)
    plan = replace(record.plan, suite=replace(suite, generation=generation, benchmarks=(benchmark,)))
    view = measured(replace(DATA, records=(replace(record, plan=plan),)))
    assert dict(view.facts)["Generation"] == "temperature 0.7, top_p 0.9, top_k 40, at most 256 tokens, seed 0"
    assert view.benchmarks[0].settings == (
        "subsets a, b, at most 50 samples per subset, 3-shot, 4 answers per sample, at most 9 tokens, lower is better"
    )


def test_a_remote_endpoint_is_shown_without_its_password() -> None:
    record = DATA.records[-1]
    serve = ServeSpec(engine=EngineKind.REMOTE, base_url="http://me:hunter2@gpu7:8000/v1?key=hunter2", model="m-{step}")
    facts = _facts(records=(replace(record, plan=replace(record.plan, serve=serve)),))
    assert facts["Served with"] == "http://gpu7:8000/v1, model m-{step}"
    assert "hunter2" not in str(facts)


def test_an_address_loses_its_user() -> None:
    assert without_user("http://gpu7:8000/v1") == "http://gpu7:8000/v1"
    assert without_user("https://u:p@[::1]:8000/v1") == "https://[::1]:8000/v1"
    assert (without_user("http://[broken"), without_user("")) == ("(invalid URL)", "")


def test_arguments_that_look_like_keys_lose_their_values() -> None:
    args = ("--max-num-batched-tokens", "64", "--api-key", "s3cret", "s3cret", "--hf-token=s3cret", "--api-key")
    shown = ("--max-num-batched-tokens", "64", "--api-key", "***", "***", "--hf-token=***", "--api-key")
    assert with_keys_hidden(args) == shown


def test_every_status_without_a_score_has_words() -> None:
    record = RUN.records[-1]
    result = record.outcomes[0]
    assert isinstance(result, EvalResult)
    samples = tuple(
        replace(sample, status=status, score=None if status is not SampleStatus.TRUNCATED else 0.0)
        for sample, status in zip(result.samples, (s for _ in range(20) for s in SampleStatus), strict=True)
    )
    changed = replace(record, outcomes=(replace(result, samples=samples), *record.outcomes[1:]))
    assert measured(replace(DATA, records=DATA.records[:4])).benchmarks[0].samples == "80, 2 errors"
    assert {row.samples for row in measured(replace(DATA, texts={})).benchmarks} == {"-"}, "not read, not counted"
    rows = measured(replace(DATA, texts={record.plan.id: changed})).benchmarks
    assert rows[0].samples == "80, 20 truncated, 40 unscored, 20 errors"
