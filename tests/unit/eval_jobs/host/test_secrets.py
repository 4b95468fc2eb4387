"""Which variables are secret, and how their values stay out of texts."""

import pytest

from eval_jobs.host.secrets import held_secrets, is_secret, masked, passed_on, register_secret, without_secrets

KEY = 'sk-canary/0815"x'


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "GATEWAY_KEY", "PGPASSWORD", "RUNS_PASSWORD", "TRACKER_DATABASE_PASSWORD", "GITHUB_TOKEN"),
        *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "apikey"),
        *("my_passwd", "DB_SECRET", "GOOGLE_CREDENTIALS", "GITHUB_PAT", "MYSQL_PWD", "HFTOKEN", "SLURM_JWT"),
    ],
)
def test_a_variable_is_secret_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "MONKEY", "HOME", "OLDPWD", "PATH_A"]
)
def test_other_variables_are_not(name: str) -> None:
    assert not is_secret(name)


def test_a_child_gets_the_key_that_it_needs_and_no_other() -> None:
    given = {"PATH": "/bin", "GATEWAY_KEY": "a", "PGPASSWORD": "b", "HF_TOKEN": "c"}
    assert passed_on(given, keep=("GATEWAY_KEY", "NOT_SET")) == {"PATH": "/bin", "GATEWAY_KEY": "a"}


def test_a_child_gets_known_variables_and_those_that_the_user_names() -> None:
    known = {"PYTHONPATH": "/p", "CUDA_VISIBLE_DEVICES": "0", "VLLM_LOGGING_LEVEL": "DEBUG", "HF_HOME": "/hf"}
    known |= {"LC_ALL": "C", "LD_LIBRARY_PATH": "/l", "OMP_NUM_THREADS": "4", "TORCHINDUCTOR_CACHE_DIR": "/t"}
    known |= {"https_proxy": "http://me:open-sesame@proxy:3128", "NO_PROXY": "localhost", "SSL_CERT_FILE": "/c"}
    unknown = {"DATABASE_URL": "postgres://me:x@db/a", "GITHUB_PAT": "x", "MYSQL_PWD": "x", "HFTOKEN": "x"}
    unknown |= {"HF_ENDPOINT": "https://me:x@mirror", "MY_NAME": "x", "SSH_AUTH_SOCK": "/s", "VLLM_API_KEY": "x"}
    assert passed_on(known | unknown) == known
    named = {"TRACKER_PASS_ENV": "MY_NAME, HF_ENDPOINT,NOT_SET"}
    assert passed_on(known | unknown | named).keys() - known.keys() == {"MY_NAME", "HF_ENDPOINT"}


def test_a_command_of_the_user_gets_all_but_secrets() -> None:
    given = {"AWS_PROFILE": "ml", "MY_NAME": "x", "PATH": "/bin"}
    secret = {"DATABASE_URL": "postgres://me:x@db/a", "GITHUB_PAT": "x", "MYSQL_PWD": "x", "HFTOKEN": "x"}
    assert without_secrets(given | secret) == given


def test_a_password_in_an_address_is_masked() -> None:
    held = held_secrets({"HTTPS_PROXY": "http://me:open-sesame@proxy:3128", "DATABASE": "postgresql://longusername@db"})
    assert masked("cannot reach http://me:open-sesame@proxy:3128", held) == "cannot reach http://me:***@proxy:3128"
    assert masked("longusername", held) == "longusername"


@pytest.mark.parametrize(
    "text", [KEY, "sk-canary%2F0815%22x", 'said {"auth": "Bearer sk-canary/0815\\"x"}', f"{KEY}{KEY}"]
)
def test_a_secret_is_masked_as_it_is_in_urls_and_in_json(text: str) -> None:
    shown = masked(f"before {text} after", [KEY])
    assert "canary" not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_words_that_stand_for_no_key_are_left_in_the_text() -> None:
    assert masked("EMPTY or none", ["EMPTY", "none", ""]) == "EMPTY or none"


def test_of_two_secrets_the_longer_one_is_masked_whole() -> None:
    assert masked("abcdefgh-ijkl", ["abcdefgh", "abcdefgh-ijkl"]) == "***"


def test_passwords_are_known_from_the_environment_as_http_sends_them_and_by_being_remembered() -> None:
    held = held_secrets({"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "open-sesame", "PATH": "/bin"})
    assert masked("Basic bWU6b3Blbi1zZXNhbWU= open-sesame /bin", held) == "Basic *** *** /bin"
    assert register_secret("from-a-file-4711") == "from-a-file-4711"
    assert "from-a-file-4711" in held_secrets({})


def test_where_a_key_lies_is_no_secret() -> None:
    places = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token", "SSH_KEY_PATH": "/home/me/.ssh/id"}
    assert not held_secrets(places) & set(places.values())
