"""What each service takes and how it answers, as it documents it; see `chat_services`."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.chat_services import Asked, Said

HOUR_S = 3600.0
JSON_TYPE = "application/json"


@dataclass
class SlackRules:
    """Incoming webhooks: status and one word of text; a wrong address is 404 no_service."""

    path: str = "/services/T01234567/B01234567/abcdefghijklmnopqrstuvwx"

    def answer(self, asked: Asked) -> Said:
        if asked.method != "POST":
            return Said(405, "method_not_allowed")
        if asked.target != self.path:
            return Said(404, "no_service")
        return self._of(asked)

    def _of(self, asked: Asked) -> Said:
        document = _object(asked)
        if document is None or not asked.headers.get("content-type", "").startswith(JSON_TYPE):
            return Said(400, "invalid_payload")
        if set(document) - {"text", "blocks", "attachments", "username", "icon_emoji", "mrkdwn", "thread_ts"}:
            return Said(400, "invalid_payload")
        if not document.get("text") and not document.get("blocks"):
            return Said(400, "no_text")
        blocks = document.get("blocks", [])
        if not isinstance(blocks, list) or len(blocks) > 50 or not all(_is_slack_block(one) for one in blocks):
            return Said(400, "invalid_blocks")
        return Said(200, "ok", {"Content-Type": "text/html"})

    def is_taken(self, said: Said) -> bool:
        return said.body == "ok"


def _is_slack_block(block: Any) -> bool:
    kinds = {"header": ("plain_text", 150), "section": ("mrkdwn", 3000)}
    if not isinstance(block, dict) or block.get("type") not in kinds or set(block) != {"type", "text"}:
        return False
    kind, limit = kinds[block["type"]]
    text = block["text"]
    known = {"type", "text", "emoji"} if kind == "plain_text" else {"type", "text", "verbatim"}
    return text.get("type") == kind and set(text) <= known and 0 < len(text["text"]) <= limit


@dataclass
class DingTalkRules:
    """Custom robots: always 200, `errcode` decides; 20 messages a minute, and after one more none for ten minutes."""

    secret: str = ""
    token: str = field(default="d8f3a6c1e5b74290a1b2c3d4e5f60718293a4b5c6d7e8f90")
    keyword: str = ""
    per_minute: int = 20
    now: Callable[[], float] = time.time
    _times: list[float] = field(default_factory=list)
    _limited_until: float = 0.0

    @property
    def path(self) -> str:
        return f"/robot/send?access_token={self.token}"

    def answer(self, asked: Asked) -> Said:
        code, text = self._verdict(asked)
        return _json({"errcode": code, "errmsg": text})

    def _verdict(self, asked: Asked) -> tuple[int, str]:
        if asked.method != "POST":
            return 43002, "需要POST请求"
        if not asked.query.get("access_token"):
            return 40035, "缺少参数 access_token"
        if asked.path != "/robot/send" or asked.query["access_token"] != self.token:
            return 300005, "token is not exist"
        return self._insecure(asked) or self._wrong(asked) or self._too_fast() or (0, "ok")

    def _insecure(self, asked: Asked) -> tuple[int, str] | None:
        if self.secret:
            timestamp = asked.query.get("timestamp", "")
            if len(timestamp) != 13 or abs(self.now() - int(timestamp) / 1000) > HOUR_S:
                return 310000, "invalid timestamp"
            digest = hmac.new(self.secret.encode(), f"{timestamp}\n{self.secret}".encode(), hashlib.sha256).digest()
            if asked.query.get("sign", "") != base64.b64encode(digest).decode():
                return 310000, "sign not match, more: [https://ding-doc.dingtalk.com/doc#/serverapi2/qf2nxq]"
        if self.keyword and self.keyword not in asked.body.decode(errors="replace"):
            return 310000, "keywords not in content, more: [https://ding-doc.dingtalk.com/doc#/serverapi2/qf2nxq]"
        return None

    def _wrong(self, asked: Asked) -> tuple[int, str] | None:
        if not asked.headers.get("content-type", "").startswith(JSON_TYPE):
            return 43004, "无效的HTTP HEADER Content-Type"
        if len(asked.body) > 20_000:
            return 460101, "message too long, exceed 20000 bytes"
        document = _object(asked)
        if document is None:
            return 40035, "缺少参数 json"
        if document.get("msgtype") != "markdown":
            return 400105, "unsupported msgtype"
        part = document.get("markdown", {})
        if not part.get("title") or not part.get("text") or set(part) != {"title", "text"}:
            return 40035, "缺少参数 markdown"
        return None

    def _too_fast(self) -> tuple[int, str] | None:
        now = self.now()
        self._times = [*(moment for moment in self._times if moment > now - 60), now]
        if len(self._times) > self.per_minute and now >= self._limited_until:
            self._limited_until = now + 600
        is_limited = now < self._limited_until
        return (130101, "send too fast, exceed 20 times per minute") if is_limited else None

    def is_taken(self, said: Said) -> bool:
        return bool(json.loads(said.body).get("errcode") == 0)


@dataclass
class WeComRules:
    """Robots of a group: always 200, `errcode` decides; 20 messages a minute, 4096 bytes of Markdown."""

    key: str = "693axxx6-7aoc-4bc4-97a0-0ec2sifa5aaa"
    per_minute: int = 20
    now: Callable[[], float] = time.time
    _times: list[float] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/cgi-bin/webhook/send?key={self.key}"

    def answer(self, asked: Asked) -> Said:
        code, text = self._verdict(asked)
        return _json({"errcode": code, "errmsg": text})

    def _verdict(self, asked: Asked) -> tuple[int, str]:
        hint = "hint: [1647424338252370220001484], from ip: 127.0.0.1, more info at https://open.work.weixin.qq.com/devtool/query"
        if asked.path != "/cgi-bin/webhook/send" or asked.query.get("key") != self.key:
            return 93000, f"invalid webhook url, {hint}?e=93000"
        document = _object(asked)
        if asked.method != "POST" or document is None:
            return 40008, f"invalid message type, {hint}?e=40008"
        if document.get("msgtype") != "markdown":
            return 40008, f"invalid message type, {hint}?e=40008"
        content = document.get("markdown", {}).get("content", "")
        if not content:
            return 40058, f"markdown.content missing. Invalid input invalid Request Parameter, {hint}?e=40058"
        if len(content.encode()) > 4096:
            return (
                40058,
                f"markdown.content exceed max length 4096. Invalid input invalid Request Parameter, {hint}?e=40058",
            )
        now = self.now()
        self._times = [*(moment for moment in self._times if moment > now - 60), now]
        return (45009, f"api freq out of limit, {hint}?e=45009") if len(self._times) > self.per_minute else (0, "ok")

    def is_taken(self, said: Said) -> bool:
        return bool(json.loads(said.body).get("errcode") == 0)


@dataclass
class FeishuRules:
    """Custom bots of Feishu and Lark: `code` decides, and the older `StatusCode` is 0 even then."""

    secret: str = ""
    token: str = field(default="8b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0")
    keyword: str = ""
    per_minute: int = 100
    is_old: bool = False
    """Older bots say `StatusCode` alone."""
    now: Callable[[], float] = time.time
    _times: list[float] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/open-apis/bot/v2/hook/{self.token}"

    def answer(self, asked: Asked) -> Said:
        code, text = self._verdict(asked)
        if self.is_old:
            return _json({"Extra": None, "StatusCode": code, "StatusMessage": text})
        if code == 0:
            return _json({"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"})
        return _json({"code": code, "data": {}, "msg": text, "StatusCode": 0, "StatusMessage": ""})

    def _verdict(self, asked: Asked) -> tuple[int, str]:
        if asked.target != self.path:
            return 19001, "param invalid: incoming webhook access token invalid"
        document = _object(asked)
        is_json = asked.headers.get("content-type", "").startswith(JSON_TYPE)
        if asked.method != "POST" or not is_json or document is None or len(asked.body) > 20_000:
            return 9499, "Bad Request"
        if self.secret and not self._is_signed(document):
            return 19021, "sign match fail or timestamp is not within one hour from current time"
        if self.keyword and self.keyword not in asked.body.decode():
            return 19024, "Key Words Not Found"
        if document.get("msg_type") != "interactive" or not _is_card(document.get("card")):
            return 9499, "Bad Request"
        now = self.now()
        self._times = [*(moment for moment in self._times if moment > now - 60), now]
        return (11232, "too many request") if len(self._times) > self.per_minute else (0, "success")

    def _is_signed(self, document: dict[str, Any]) -> bool:
        timestamp = str(document.get("timestamp", ""))
        if len(timestamp) != 10 or abs(self.now() - int(timestamp)) > HOUR_S:
            return False
        digest = hmac.new(f"{timestamp}\n{self.secret}".encode(), b"", hashlib.sha256).digest()
        return bool(document.get("sign") == base64.b64encode(digest).decode())

    def is_taken(self, said: Said) -> bool:
        answer = json.loads(said.body)
        return bool(answer.get("code", answer["StatusCode"]) == 0)


def _is_card(card: Any) -> bool:
    if not isinstance(card, dict) or set(card) - {"config", "header", "elements"} or not card.get("elements"):
        return False
    title = card["header"]["title"]
    is_titled = title["tag"] == "plain_text" and bool(title["content"])
    return is_titled and all(
        set(e) == {"tag", "content"} and e["tag"] == "markdown" and e["content"] for e in card["elements"]
    )


@dataclass
class WebhookRules:
    """A receiver that follows Standard Webhooks: signed, five minutes fresh, each id once."""

    secret: str = ""
    path: str = "/hooks/tracker"
    now: Callable[[], float] = time.time
    seen: list[str] = field(default_factory=list)

    def answer(self, asked: Asked) -> Said:
        if asked.target != self.path:
            return Said(404, "not found")
        if self.secret and not self._is_signed(asked):
            return Said(401, "the signature does not match")
        document = _object(asked)
        if document is None or document.get("schema_version") != 1 or document["id"] != asked.headers["webhook-id"]:
            return Said(422, "no such document")
        self.seen.append(asked.headers["webhook-id"])
        return Said(204)

    def _is_signed(self, asked: Asked) -> bool:
        name, timestamp = (asked.headers.get(f"webhook-{key}", "") for key in ("id", "timestamp"))
        if not timestamp.isdigit() or abs(self.now() - int(timestamp)) > 300:
            return False
        key = self.secret.encode()
        if self.secret.startswith("whsec_"):
            key = base64.b64decode(self.secret.removeprefix("whsec_"))
        digest = hmac.new(key, f"{name}.{timestamp}.".encode() + asked.body, hashlib.sha256).digest()
        offered = asked.headers.get("webhook-signature", "").split(" ")
        return f"v1,{base64.b64encode(digest).decode()}" in offered

    def is_taken(self, said: Said) -> bool:
        return 200 <= said.status < 300


@dataclass
class AlertmanagerRules:
    """The second version of Alertmanager's interface, as far as sending goes; the real one is tested apart."""

    authorization: str = ""
    path: str = ""

    def answer(self, asked: Asked) -> Said:
        if asked.target != "/api/v2/alerts":
            return Said(404, json.dumps("path was not found"))
        if self.authorization and asked.headers.get("authorization") != self.authorization:
            return Said(401, "Unauthorized")
        if asked.headers.get("content-type", "").partition(";")[0] != JSON_TYPE:
            return Said(415, json.dumps({"code": 415, "message": "unsupported media type"}))
        alerts = json.loads(asked.body.decode())
        for alert in alerts:
            if not alert.get("labels", {}).get("alertname") or not all(alert["labels"].values()):
                return Said(400, json.dumps("invalid label set"))
            if set(alert) - {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}:
                return Said(400, json.dumps("unknown field"))
        return Said(200)

    def is_taken(self, said: Said) -> bool:
        return said.status == 200


# --- private


def _object(asked: Asked) -> dict[str, Any] | None:
    try:
        value = asked.json()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _json(value: object) -> Said:
    return Said(200, json.dumps(value, ensure_ascii=False), {"Content-Type": "application/json; charset=utf-8"})
