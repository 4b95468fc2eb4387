"""`tracker rules test`: incidents and steps of log files, rules of one's own, and logs that are hard to read."""

import gzip
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eval_jobs.errors import ConfigError
from tests.requires import requires_package
from tracker.cli.commands.to_inspect.rules import command
from tracker.config import load_config
from tracker.config.health import load_rules

CRASH = """step 10 | loss 2.5
step 20 | loss 2.25
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
Killing subprocess 77
"""
OWN = """
[[rule]]
name = "reward_collapse"
contains = ["Reward"]
pattern = "reward std < 1e-3"
hint = "raise the temperature"
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["test", *arguments], catch_exceptions=False, env={"COLUMNS": "300"})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(CRASH, encoding="utf-8")
    return path


def test_a_crash_is_shown_with_its_cause_its_step_and_what_to_do(log: Path) -> None:
    shown = " ".join(run(str(log)).stdout.split())
    assert "4 lines, 2 lines of steps 10 to 20, loss 2.500 → 2.250" in shown
    assert (
        "oom GPU memory ran out (2 lines, step 20, rank 3) line 3: [rank3]: torch.OutOfMemoryError: CUDA out of memory"
        in shown
    )
    assert "3 oom alert 1 [rank3]: torch.OutOfMemoryError" in shown
    assert "4 worker_died alert 1 Killing subprocess 77" in shown
    assert "hint: use a smaller micro-batch" in shown


def test_json_has_the_same(log: Path, tmp_path: Path) -> None:
    healthy = tmp_path / "healthy.log"
    healthy.write_text("step 1 | loss 2.5\n", encoding="utf-8")
    crashed, fine = json.loads(run(str(log), str(healthy), "--json").stdout)["result"]
    (incident,) = crashed["incidents"]
    assert (incident["name"], incident["step"], incident["is_alert"], incident["ranks"]) == ("oom", 20, True, [3])
    assert [line["number"] for line in incident["evidence"]] == [3, 4]
    assert fine["incidents"] == []
    assert "no incident" in run(str(healthy)).stdout


def test_expected_incidents_decide_the_exit_code(log: Path) -> None:
    assert CliRunner().invoke(command, ["test", str(log), "--expect", "oom=1"], standalone_mode=False).return_value == 0
    wrong = CliRunner().invoke(command, ["test", str(log), "--expect", "nan=1"], standalone_mode=False)
    assert wrong.return_value == 1
    assert "expected nan=1, found 0" in wrong.stderr
    with pytest.raises(ConfigError, match=r"unknown class 'ooom' \(hint: did you mean oom\? known: behind, "):
        run(str(log), "--expect", "ooom=1")
    with pytest.raises(ConfigError, match=r"invalid --expect 'oom' \(hint: write CLASS=N, such as oom=1\)"):
        run(str(log), "--expect", "oom")


def test_what_the_loss_does_is_shown_and_counted(log: Path) -> None:
    losses = [2.5 + 0.01 * (k % 3) for k in range(40)] + [8.0, 9.0, 2.5]
    log.write_text("".join(f"step {k} | loss {loss}\n" for k, loss in enumerate(losses)), encoding="utf-8")
    shown = run(str(log), "--expect", "spike=1").stdout
    assert "spike The loss spiked (step 40, loss 2.510 → 9.000, back at step 42) hint: look at" in " ".join(
        shown.split()
    )


def test_rules_of_ones_own_come_first_and_replace_ours(log: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    own = OWN + '[[rule]]\nname = "oom"\ncontains = ["nothing like it"]\npattern = "nothing like it"\n'
    rules.write_text(own, encoding="utf-8")
    log.write_text(CRASH + "REWARD STD < 1E-3\n", encoding="utf-8")
    shown = run(str(log), "--rules", str(rules)).stdout
    assert "reward_collapse (3 lines" in shown
    assert "oom" not in shown.replace("rules.toml", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OWN.replace("std <", "(std <"), r"rule.*pattern: .*is not a regular expression: missing \)"),
        (OWN.replace("[[rule", "[[health.rule"), r"a file of rules has \[\[rule\]\] tables"),
        (OWN + OWN, "two rules are named reward_collapse"),
        (OWN.replace("reward_collapse", "nan"), "nan is found by the numbers of a step"),
        (OWN.replace("reward_collapse", "Reward Collapse"), "name: "),
        (OWN + 'colour = "red"\n', "unknown setting rule.*colour"),
        ("[[rule]]\n", r"missing setting rule.*name"),
        ('[[rule]]\nname = "x"\n', "set pattern or condition \\("),
        ('[[rule]]\nname = "x"\npattern = "y"\ncondition = "loss > 3"\n', "set pattern or condition, not both"),
        ('[[rule]]\nname = "x"\ncondition = "loss is high"\n', "'loss is high' is no condition: write NAME < NUMBER"),
        ('[[rule]]\nname = "x"\npattern = "y"\nexample = "z"\n', "the pattern does not fit the example 'z'"),
    ],
)
def test_wrong_rules_are_named_at_once(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        load_rules(path)


def test_no_wrong_rule_hides_another(tmp_path: Path) -> None:
    broken = OWN.replace("std <", "(std <").replace("reward_collapse", "nan")
    vague = '[[rule]]\nname = "x"\ncondition = "loss is high"\ncolour = "red"\n'
    unset = '[[rule]]\nname = "Reward"\n'
    path = tmp_path / "rules.toml"
    path.write_text(OWN + broken + vague + OWN + unset + vague, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_rules(path)
    for said in (
        "rule: nan is found by the numbers of a step: choose another name",
        "rule.[2].pattern: 'reward (std < 1e-3' is not a regular expression: missing )",
        "rule.[3].condition: 'loss is high' is no condition",
        "unknown setting rule.[3].colour",
        "rule.[5].name: ",
        "rule.[5]: set pattern or condition",
        "rule: two rules are named reward_collapse: rename one",
        "rule: two rules are named x: rename one",
    ):
        assert said in raised.value.message
    config = tmp_path / "tracker.toml"
    text = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "exact"\ndata = "x.jsonl"\n'
    config.write_text(text + (OWN + broken + OWN).replace("[[rule", "[[health.rule"))
    with pytest.raises(ConfigError, match=r"health\.rule: two rules are named reward.*health\.rule: nan is"):
        load_config(config)


def test_a_condition_on_a_number_is_a_rule(tmp_path: Path) -> None:
    log, rules = tmp_path / "train.log", tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "no_spread"\ncondition = "rewards/std < 1e-3 for 3 points"\nhint = "x"\n')
    log.write_text("".join(f'{{"step": {step}, "rewards/std": {0.5 if step < 5 else 1e-5}}}\n' for step in range(9)))
    assert run(str(log), "--rules", str(rules), "--expect", "no_spread=1").exit_code == 0
    assert "no_spread (step 5, rewards/std" in " ".join(run(str(log), "--rules", str(rules)).stdout.split())


def test_the_rules_and_formats_of_a_project_are_tried(tmp_path: Path) -> None:
    log, config = tmp_path / "train.log", tmp_path / "tracker.toml"
    log.write_text('{"it": 1, "ce": 9.5}\nskipping batch 7\n')
    text = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "exact"\ndata = "x.jsonl"\n'
    text += '[[health.format]]\nstep = "it"\nloss = "ce"\n[[health.rule]]\nname = "bad_batch"\npattern = "skipping"\n'
    config.write_text(text)
    shown = run(str(log), "--config", str(config), "--expect", "bad_batch=1")
    assert shown.exit_code == 0
    assert "1 line of step 1, loss 9.500" in " ".join(shown.stdout.split())
    config.write_text(text + "[health.hang]\nreport_s = 60\nreport_factor = 2\n")
    times = ["1m 2s", *(f"1m {second}s" for second in range(3, 60)), "4m 0s"]
    log.write_text("".join(f'{{"loss": 2.5, "elapsed_time": "{time}"}}\n' for time in times))
    assert "1 hang in" in run(str(log), "--config", str(config)).stdout
    assert "no hang in" in run(str(log)).stdout
    with pytest.raises(ConfigError, match="exclude each other"):
        run(str(log), "--config", str(config), "--rules", str(config))


def test_a_pattern_that_takes_too_long_is_disabled_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, rules = tmp_path / "train.log", tmp_path / "rules.toml"
    rules.write_text("[[rule]]\nname = \"slow\"\npattern = '(a+)+$'\n")
    log.write_text("a" * 60 + "!\n" + "a" * 60 + "!\n" + CRASH)
    assert run(str(log), "--rules", str(rules), "--expect", "slow=0", "--expect", "oom=1").exit_code == 0
    (message,) = caplog.messages
    assert message.startswith("rule slow is disabled: its pattern took longer than 50 ms for a line of 61 characters")


def test_logs_that_are_hard_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "train.log"
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    log.write_bytes(b"\xff\0" + b"x" * 200_000 + b"\nValueError: hf_abcdefghijklmnop is no token\0")
    shown = " ".join(run(str(log)).stdout.split())
    assert "2 lines" in shown
    assert "python_error The program ended with an error (1 line) line 2: ValueError:" in shown
    assert "hf_abc" not in shown
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path / "none.log"):
        with pytest.raises(ConfigError, match=r"cannot read .*hint: pass a log file that you may read"):
            run(str(path))
    assert run(str(tmp_path)).exit_code == 2


def test_a_packed_log_and_the_state_of_a_trainer_are_read(tmp_path: Path) -> None:
    packed, state = tmp_path / "train.log.gz", tmp_path / "trainer_state.json"
    packed.write_bytes(gzip.compress(CRASH.encode()))
    history = [{"step": k, "loss": loss} for k, loss in enumerate([1.6, 11.8, *(10.3735,) * 6])]
    history.append({"step": 8, "train_runtime": 5.5, "train_loss": 4.0})
    state.write_text(json.dumps({"global_step": 8, "log_history": history}), encoding="utf-8")
    shown = run(str(packed), str(state)).stdout
    assert "oom GPU memory ran out (2 lines, step 20, rank 3)" in shown
    assert "loss 1.600 → 10.37" in " ".join(shown.split())
    assert "collapsed (step 2, loss 1.600 → 10.37, lasts)" in shown
    packed.write_bytes(gzip.compress(CRASH.encode())[:-9])
    state.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cannot read .*ended before"):
        run(str(packed))
    with pytest.raises(ConfigError, match=r"is no trainer_state\.json"):
        run(str(state))


@pytest.mark.parametrize(
    "content",
    [
        CRASH.replace("[rank3]", " 1%|#  | 1/100 [00:01<01:00, 1it/s]" * 3000 + "\r[rank3]").encode(),
        CRASH.encode("utf-16"),
        b"\0" * 300_000 + CRASH.encode(),  # as a truncated log, to whose end its writer still writes
        CRASH.encode().rstrip(b"\n"),
    ],
    ids=["progress bar", "UTF-16", "hole", "no end"],
)
def test_a_log_is_read_as_the_agent_reads_it(log: Path, content: bytes) -> None:
    log.write_bytes(content)
    shown = " ".join(run(str(log), "--expect", "oom=1").stdout.split())
    assert "4 lines, 2 lines of steps 10 to 20, loss 2.500 → 2.250" in shown
    assert "oom GPU memory ran out (2 lines, step 20, rank 3) line 3: [rank3]: torch" in shown
    log.with_suffix(".log.gz").write_bytes(gzip.compress(content))
    assert " ".join(run(f"{log}.gz").stdout.split()) == shown.replace("train.log", "train.log.gz")


def test_event_files_of_tensorboard_are_read(tmp_path: Path) -> None:
    requires_package("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step, loss in enumerate([1.6, 11.8, *(10.3735,) * 6]):
        writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag="train/loss", simple_value=loss)])))
    writer.close()
    (path,) = tmp_path.iterdir()
    shown = " ".join(run(str(path), "--expect", "collapsed=1").stdout.split())
    assert "8 lines, 8 lines of steps 0 to 7, loss 1.600 → 10.37 collapsed" in shown


def test_every_hit_is_shown_with_its_class_and_its_incident(log: Path) -> None:
    again = "".join(f"step {step} | loss 2\n" for step in (30, 40, 50))
    log.write_text(
        CRASH + "Killing subprocess 78\n" * 3 + again + "ConnectionError: Max retries exceeded with url: /\n"
    )
    (report,) = json.loads(run(str(log), "--json").stdout)["result"]
    assert [incident["number"] for incident in report["incidents"]] == [1, 2]
    assert [(hit["number"], hit["name"], hit["severity"], hit["incident"]) for hit in report["hits"]] == [
        (3, "oom", "alert", 1),
        *((number, "worker_died", "alert", 1) for number in range(4, 8)),
        (11, "network", "shown", 2),
    ]
    shown = " ".join(run(str(log)).stdout.split())
    assert "7 worker_died alert 1 Killing subprocess 78 11 network shown 2 ConnectionError" in shown
    log.write_text(CRASH * 30)
    shown = run(str(log)).stdout
    assert shown.count("Killing subprocess 77") == 25
    assert "10 more hits: --json has all" in shown
    (report,) = json.loads(run(str(log), "--json").stdout)["result"]
    assert len(report["hits"]) == 60


def test_losses_without_a_step_are_numbered(log: Path) -> None:
    losses = [2.5 + 0.01 * (k % 3) for k in range(40)] + [8.0, 9.0, 2.5]
    log.write_text("".join(f"{{'loss': {loss}, 'epoch': 0.1}}\n" for loss in losses), encoding="utf-8")
    shown = " ".join(run(str(log)).stdout.split())
    assert "43 lines, 43 losses without a step, loss 2.500 → 2.500" in shown
    assert "spike The loss spiked (loss number 41, loss 2.510 → 9.000, back at loss number 43)" in shown
