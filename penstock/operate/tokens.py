"""Delegation tokens: made for oneself or another, listed, renewed and ended, through the Kafka protocol."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import not_found
from penstock.operate.positions import format_time
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.operate.session import Session

USER = "User"


def create(session: Session, owner: str | None, renewers: list[str], lifetime_ms: int) -> dict[str, Any]:
    """The new token with its secret: the only moment at which the command line shows that one."""
    api = messages.api("create_delegation_token")
    renewer = api.request_struct("CreatableRenewers")
    request = api.Request(
        renewers=[renewer(principal_type=USER, principal_name=name) for name in renewers],
        max_lifetime_ms=lifetime_ms,
        owner_principal_type=USER if owner else None,
        owner_principal_name=owner,
    )
    answer = session.client.call_controller("create_delegation_token", request)
    _insist(answer.error_code, "the token")
    return {**_row(answer), "secret": base64.b64encode(answer.hmac).decode()}


def token_rows(session: Session) -> list[dict[str, Any]]:
    """Tokens that one may see, without their secrets."""
    return [_row(token) for token in _visible(session)]


def renew(session: Session, token_id: str, period_ms: int) -> int:
    """Until when the token lives on."""
    api = messages.api("renew_delegation_token")
    request = api.Request(hmac=_known(session, token_id).hmac, renew_period_ms=period_ms)
    answer = session.client.call_controller("renew_delegation_token", request)
    _insist(answer.error_code, f"token {token_id}")
    return int(answer.expiry_timestamp)


def end(session: Session, token_id: str) -> None:
    """At once: whoever uses it is thrown out."""
    api = messages.api("expire_delegation_token")
    request = api.Request(hmac=_known(session, token_id).hmac, expiry_time_period_ms=-1)
    _insist(session.client.call_controller("expire_delegation_token", request).error_code, f"token {token_id}")


def _visible(session: Session) -> list[Any]:
    api = messages.api("describe_delegation_token")
    answer = session.client.call_any("describe_delegation_token", api.Request(owners=None))
    _insist(answer.error_code, "tokens")
    return list(answer.tokens)


def _known(session: Session, token_id: str) -> Any:
    """By its id, so that no secret has to stand on a command line."""
    tokens = {token.token_id: token for token in _visible(session)}
    if token_id not in tokens:
        raise not_found("token", token_id, tokens)
    return tokens[token_id]


def _row(token: Any) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "owner": token.principal_name,
        "requester": token.token_requester_principal_name,
        "expires": format_time(token.expiry_timestamp),
        "ends": format_time(token.max_timestamp),
    }


def _insist(code: int, what: str) -> None:
    if code:
        raise admin.refuse(code, what)
