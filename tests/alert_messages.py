"""Messages for the tests of channels: an ordinary one, a huge one, and one whose foreign text is an attack."""

from dataclasses import replace
from datetime import UTC, datetime

from tracker.domain.records.alerts import (
    Alert,
    AlertEvidence,
    AlertKind,
    AlertMessage,
    AlertState,
    AlertSubject,
    SubjectKind,
)

RAISED_AT = datetime(2026, 2, 1, 12, 30, tzinfo=UTC)

EVIDENCE = AlertEvidence(
    score=0.58,
    change=-0.21,
    ci_low=-0.31,
    ci_high=-0.11,
    baseline_steps=(100, 200, 300, 400, 500),
    n_common=100,
    n_lost=25,
    n_gained=4,
    lost_samples=("What is 17 + 25?", "What is 8 * 7?"),
)

HOSTILE = (
    '<at user_id="all">x</at> <!channel> @all **bold** _it_ `code` [click](https://evil.example) ![x](https://e/x.png) '
    '<script>alert(1)</script> <font color="info">ok</font> &lt;b&gt; ~~gone~~ # head\n- list\r\n> quote '
    "\x1b[31m 错误😀 \ud800 end"
)


def alert(
    number: int = 1,
    *,
    state: AlertState = AlertState.FIRING,
    kind: AlertKind = AlertKind.LOSS,
    subject: str = "sums",
    message: str = "sums regressed at step 600: 0.790 -> 0.580",
    evidence: AlertEvidence | None = EVIDENCE,
    run_id: str = "run-a",
    command: str = "tracker compare run-a 500 600",
) -> Alert:
    return Alert(
        fingerprint=f"{number:016x}",
        run_id=run_id,
        step=600,
        kind=kind,
        subject=AlertSubject(kind=SubjectKind.BENCHMARK, name=subject),
        state=state,
        message=message,
        evidence=evidence,
        command=command,
        raised_at=RAISED_AT,
    )


def message_of(*alerts: Alert, link: str = "https://mlflow.example/#/experiments/1") -> AlertMessage:
    run_id = alerts[0].run_id
    return AlertMessage(run_id=run_id, step=600, alerts=alerts, link=link)


def ordinary() -> AlertMessage:
    return message_of(alert())


def resolved() -> AlertMessage:
    return message_of(alert(state=AlertState.RESOLVED, message="sums recovered at step 700", evidence=None))


def hostile() -> AlertMessage:
    """A message in which everything that others wrote is an attack."""
    evidence = AlertEvidence(change=-0.2, n_common=10, n_lost=2, lost_samples=(HOSTILE, HOSTILE))
    command = f"tracker compare '{HOSTILE}'"
    one = alert(subject=HOSTILE, message=HOSTILE, evidence=evidence, run_id=HOSTILE, command=command)
    return message_of(
        replace(one, fingerprint=f"test of {HOSTILE}"),
        link="https://mlflow.example/#/?q=<b>)](",
    )


def huge(character: str = "错", count: int = 60) -> AlertMessage:
    """More alerts than any channel shows at once, each with texts of thousands of characters."""
    long = (character * 4000)[:4000]
    evidence = AlertEvidence(change=-0.2, n_common=10, n_lost=9, lost_samples=(long,) * 9)
    return message_of(
        *(
            alert(
                n, subject=f"{n} {long}", message=long, evidence=evidence, run_id=long, command=f"tracker compare {n}"
            )
            for n in range(count)
        )
    )
