"""Tables of what was logged and reported while trainings ran: alerts, curves, incidents and the log. Pure."""

from tracker.domain.tables.columns import (
    RUN,
    STEP,
    TableDefinition,
    category,
    count,
    flag,
    moment,
    number,
    optional_count,
    text,
)

ALERTS = TableDefinition(
    name="alerts",
    row="alert",
    columns=(
        RUN,
        optional_count("step", "Step of the checkpoint or the training; NA: unknown."),
        category("kind", "What it is about."),
        category("state", "firing or resolved."),
        category("benchmark", "Benchmark; empty: none, or several together."),
        text("message", "Its text."),
        text("fingerprint", "Identifies its cause."),
        moment("since", "Time of its state."),
    ),
)

CURVES = TableDefinition(
    name="curves",
    row="logged value of the training, without what a restart discarded",
    columns=(RUN, STEP, category("key", "Name of the curve, such as train/loss."), number("value", "Its value.")),
)

POINTS = TableDefinition(
    name="points",
    row="value of a curve as it was read, in this order",
    columns=(RUN, STEP, category("key", "Name of the curve."), number("value", "Its value.")),
)

INCIDENTS = TableDefinition(
    name="incidents",
    row="incident of the training",
    columns=(
        RUN,
        moment("seen_at", "When its first line was read."),
        text("id", "As in `tracker incidents`."),
        category("class", "What happened, such as oom."),
        flag("is_alert", "Whether it is worth a notification."),
        optional_count("step", "Last step before it."),
        moment("last_seen_at", "When its newest line was read."),
        count("lines", "Its lines."),
        category("ended_by", "Why it is over; empty: it lasts."),
        optional_count("ended_step", "Step that showed it."),
        text("reason", "Why a user dismissed it."),
        text("text", "The line that explains it."),
    ),
)

PROGRESS = TableDefinition(
    name="progress",
    row="training whose logs are read",
    columns=(
        RUN,
        optional_count("last_step", "Newest step in its logs."),
        category("state", "What its processes do, or how they ended; empty: none was seen."),
        number("usual_s", "Usual time between two logged steps.", "s"),
        number("productive_share", "Share of the time in which steps advanced."),
        moment("read_at", "When its logs had anything new."),
    ),
)

LOG = TableDefinition(
    name="log",
    row="event of the log",
    columns=(
        RUN,
        count("number", "Grows from event to event."),
        moment("at", "When it happened."),
        category("kind", "What happened, such as evaluated, changed or alert."),
        optional_count("step", "Step of the checkpoint; missing: none."),
        text("subject", "Benchmark, subject of an alert or a silence, or name of a setting."),
        text("before", "Verdict, message or value that was replaced."),
        text("after", "The new one; of an evaluation its verdicts."),
        text("reason", "Why."),
    ),
)
