"""The user's own receiver: a JSON document, signed as in Standard Webhooks (standardwebhooks.com).

    signed content    f"{webhook-id}.{webhook-timestamp}.{body}"
    webhook-signature "v1," + base64(HMAC-SHA256(secret, signed content))

A receiver computes the signature over the received bytes and refuses a timestamp (seconds) that is more than five
minutes off. It ignores a document whose id it has seen: a repeated document keeps its id.
"""

import base64
import binascii
from dataclasses import asdict

from tracker.adapters.alerts.sending.markdown import address
from tracker.adapters.alerts.sending.posting import JSON, json_bytes, post
from tracker.adapters.alerts.sending.target import Channel, hmac_base64
from tracker.domain.alerts.text import id_of, message_text
from tracker.domain.records.alerts import Alert, AlertMessage, alert_subject_text
from tracker.domain.records.display import clean, one_line

SCHEMA_VERSION = 1
_ENCODED = "whsec_"


class Webhook(Channel):
    """`tracker.ports.Notifier` that sends documents to any receiver; a 2xx status accepts one."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        target = self.target
        body = json_bytes(document_of(message))
        headers = {**JSON, "webhook-id": id_of(message), "webhook-timestamp": str(int(target.clock.now().timestamp()))}
        if target.secret:
            headers["webhook-signature"] = signature(target.secret, headers, body)
        reply = post(target, body, headers=headers)
        return target.harmless(f"HTTP {reply.status} {reply.body}".strip())


def signature(secret: str, headers: dict[str, str], body: bytes) -> str:
    """Return the header `webhook-signature` for a body with the id and the timestamp in `headers`."""
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return f"v1,{hmac_base64(key_of(secret), content)}"


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret; after the prefix `whsec_` it is decoded from base64.

    Raises:
        ValueError: what follows `whsec_` is not base64.
    """
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error as error:
        raise ValueError(f"invalid key: no base64 after {_ENCODED}") from error


def document_of(message: AlertMessage) -> dict[str, object]:
    """Return the document; docs/how-to/alerts.md describes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "id": id_of(message),
        "run": clean(message.run_id),
        "step": message.step,
        "is_firing": message.is_firing,
        "title": message_text(message).title,
        "link": address(one_line(message.link)),
        "alerts": [_alert(alert) for alert in message.alerts],
    }


def _alert(alert: Alert) -> dict[str, object]:
    evidence = None
    if alert.evidence is not None:
        evidence = asdict(alert.evidence)
        for name in ("lost_samples", "lines"):
            evidence[name] = [clean(line) for line in evidence[name]]
        evidence["hint"] = clean(alert.evidence.hint)
    return {
        "fingerprint": clean(alert.fingerprint),
        "state": alert.state,
        "is_correction": alert.is_correction,
        "kind": alert.kind,
        "step": alert.step,
        "subject": clean(alert_subject_text(alert.subject)),
        "message": clean(alert.message),
        "command": clean(alert.command),
        "raised_at": alert.raised_at.isoformat(),
        "evidence": evidence,
    }
