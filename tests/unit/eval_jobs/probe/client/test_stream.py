import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.probe.client.stream import DataLines, StreamEvent, read_event, server_message


def test_a_token_event_has_choices_even_when_its_text_is_empty() -> None:
    event = read_event(b'{"choices":[{"index":0,"text":"","finish_reason":null}],"usage":null}')
    assert event == StreamEvent(has_choices=True)


def test_the_last_token_says_that_the_answer_is_complete() -> None:
    assert read_event(b'{"choices":[{"text":"x","finish_reason":"length"}]}') == StreamEvent(
        has_choices=True, done=True
    )


def test_the_usage_event_has_no_choices_and_the_counts() -> None:
    event = read_event(b'{"choices":[],"usage":{"prompt_tokens":64,"completion_tokens":32}}')
    assert event == StreamEvent(output_tokens=32, prompt_tokens=64)


def test_done_is_the_end() -> None:
    assert read_event(b"[DONE]") == StreamEvent(done=True)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"error":{"message":"EngineCore encountered an issue.","code":500}}', "EngineCore"),
        (b'{"error":"out of memory"}', "out of memory"),
        (b'{"choices":[{"text":"half","finish_reason":"abort"}]}', "abort"),
        (b'{"choices":[{"text":"half","finish_reason":"error"}]}', "error"),
    ],
)
def test_a_failure_inside_a_good_stream_is_a_failure(data: bytes, words: str) -> None:
    assert words in read_event(data).error


@pytest.mark.parametrize("data", [b"<html>", b"[1, 2]", b"", b'"text"', b"{"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_event(data)


def test_comments_and_other_fields_are_left_out() -> None:
    assert DataLines().feed(b': ping\nevent: x\nid: 1\ndata: {"a":1}\n\ndata: [DONE]\n\n') == [b'{"a":1}', b"[DONE]"]


def test_windows_line_ends_and_missing_blanks_are_understood() -> None:
    assert DataLines().feed(b"data:1\r\n\r\ndata: 2\r\n") == [b"1", b"2"]


@given(st.lists(st.text(max_size=20), max_size=8), st.integers(1, 7))
def test_events_are_the_same_however_the_bytes_arrive(texts: list[str], size: int) -> None:
    payloads = [json.dumps({"choices": [{"text": text}]}, ensure_ascii=False).encode() for text in texts]
    stream = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
    lines = DataLines()
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert [data for piece in pieces for data in lines.feed(piece)] == payloads


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "too\\nlong", "code": 400}}', "too long"),
        ('{"error": "no"}', "no"),
        ('{"message": "gone", "object": "error"}', "gone"),
        ("<html>\n502 Bad Gateway", "<html> 502 Bad Gateway"),
        ("[1]", "[1]"),
        ("", ""),
    ],
)
def test_a_refusal_says_the_servers_own_words(body: str, said: str) -> None:
    assert server_message(body) == said
