"""Keys in lines of a log are replaced, and nothing else."""

import pytest

from tracker.domain.health.logs.masking import without_keys


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("login with hf_abcdefghijklmnopqrstuv done", "login with *** done"),
        ("OPENAI_API_KEY=sk-proj-abcdefghij0123456789", "OPENAI_API_KEY=***"),
        ("{'api_key': 'abcdefgh12345', 'lr': 0.1}", "{'api_key': '***', 'lr': 0.1}"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("cloning https://me:pass-word@host/repo.git", "cloning https://me:***@host/repo.git"),
        ("AKIAABCDEFGHIJKLMNOP and ghp_abcdefghijklmnopqrstuvwx", "*** and ***"),
        ("wandb token: 0123456789abcdef", "wandb token: ***"),
        ("run --token abcdef123 --lr 0.1", "run --token *** --lr 0.1"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("password=hunter2", "password=***"),
        ("glpat-abcdefghij0123456789 and AIzaabcdefghijklmnopqrstuvwxyz0123456789", "*** and ***"),
        ("github_pat_11ABCDEFG0_abcdefghijkl and nvapi-abcdefghijklmnopqrst", "*** and ***"),
        ("sent eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.ab-c_d to", "sent *** to"),
        ("run --wandb-key abcdef123 --lr 0.1", "run --wandb-key *** --lr 0.1"),
        ("wandb: login key 0123456789abcdef0123456789abcdef01234567", "wandb: login key ***"),
        ("at commit 0123456789abcdef0123456789abcdef01234567", "at commit 0123456789abcdef0123456789abcdef01234567"),
        ("token_acc: 0.75, tokens/s: 12345", "token_acc: 0.75, tokens/s: 12345"),
        ("step 10 | loss: 2.5", "step 10 | loss: 2.5"),
        ("secretary of the board", "secretary of the board"),
    ],
)
def test_keys_are_replaced(line: str, shown: str) -> None:
    assert without_keys(line) == shown
