"""Users with SCRAM credentials: who there is, new passwords, and their end, through the Kafka protocol."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from penstock.operate.errors import ExitCode, UserError
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from penstock.operate.session import Session

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
DEFAULT_MECHANISM = "SCRAM-SHA-512"
DEFAULT_ITERATIONS = 8192
_NAMES = {number: name for name, (number, _) in MECHANISMS.items()}


def user_rows(session: Session) -> list[dict[str, Any]]:
    api = messages.api("describe_user_scram_credentials")
    answer = session.client.call_any("describe_user_scram_credentials", api.Request(users=None))
    _insist(answer.error_code, answer.error_message)
    return [
        {
            "name": result.user,
            "mechanisms": ", ".join(sorted(_NAMES.get(info.mechanism, "?") for info in result.credential_infos)),
            "iterations": min((info.iterations for info in result.credential_infos), default=0),
        }
        for result in answer.results
    ]


def set_password(session: Session, name: str, password: str, mechanism: str, iterations: int) -> None:
    """The password itself does not travel, only what SCRAM makes of it."""
    number, digest = MECHANISMS[mechanism]
    salt = secrets.token_bytes(24)
    api = messages.api("alter_user_scram_credentials")
    row = api.request_struct("ScramCredentialUpsertion")
    change = row(
        name=name,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations),
    )
    _alter(session, api.Request(upsertions=[change]))


def delete_user(session: Session, name: str, mechanisms: list[str]) -> None:
    api = messages.api("alter_user_scram_credentials")
    row = api.request_struct("ScramCredentialDeletion")
    _alter(session, api.Request(deletions=[row(name=name, mechanism=MECHANISMS[m][0]) for m in mechanisms]))


def _alter(session: Session, request: Any) -> None:
    for result in session.client.call_controller("alter_user_scram_credentials", request).results:
        _insist(result.error_code, result.error_message)


def _insist(code: int, message: str | None) -> None:
    if code:
        kind = ExitCode.NOT_FOUND if code == ErrorCode.RESOURCE_NOT_FOUND else ExitCode.REFUSED
        raise UserError(message or error_name(code), code=kind)
