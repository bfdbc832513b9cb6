"""Authentication as this broker wires it: where users come from, what a change of settings would break, who must go."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.base.settings.per_listener import listener_problems
from penstock.broker.network.sasl import close_sessions
from penstock.cluster.znodes import sanitize
from penstock.security.authentication import Authentication, SecuritySettingsError, plain_users
from penstock.security.scram import MECHANISMS, ScramCredential

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.cluster.image import MetadataImage
    from penstock.security.sasl_session import SaslSession

logger = logging.getLogger(__name__)


def new_authentication(broker: Broker) -> Authentication:
    def find_user(mechanism: str, name: str) -> ScramCredential | None:
        return _credential(user_config(broker, name), mechanism)

    return Authentication(
        broker.settings,
        find_user,
        lambda mechanism, token_id: None if broker.tokens is None else broker.tokens.credential(mechanism, token_id),
        lambda token_id: None if broker.tokens is None else broker.tokens.owner(token_id),
    )


async def start_tokens(broker: Broker) -> None:
    """Delegation tokens, where their secret key is set and somebody could log in with them."""
    if not broker.settings["delegation.token.secret.key"]:
        return
    from penstock.security.token_keeper import TokenKeeper

    def removed(token_id: str) -> None:
        _report(close_sessions(broker, lambda s, _: s.outcome is not None and s.outcome.token_id == token_id))

    broker.tokens = TokenKeeper(broker.store, broker.settings, broker.clock, removed)
    await broker.tokens.start()


def user_config(broker: Broker, name: str) -> Mapping[str, str]:
    """As the image has it. Brokers log in at each other before the first image is here: then as the store had it."""
    image = broker.image_holder.image
    if image.version >= 0:
        return image.config("user", sanitize(name))
    return broker.stored_users.get(sanitize(name), {})


def _credential(config: Mapping[str, str], mechanism: str) -> ScramCredential | None:
    text = config.get(mechanism)
    if text is None:
        return None
    try:
        return ScramCredential.parse(text)
    except ValueError:
        logger.error("a user's %s credential in the store is not readable", mechanism)
        return None


def broker_change_problem(broker: Broker, name: str, overrides: Mapping[str, str]) -> str | None:
    """What a listener could not do any more with these dynamic settings."""
    from penstock.broker.network.tls_reload import checked_material
    from penstock.security.tls_material import TlsSettingsError

    problems = listener_problems(overrides, broker.settings.listeners)
    if problems:
        return problems[0].message
    candidate = broker.settings.candidate(*((overrides, None) if name == "" else (None, overrides)))
    authentication = Authentication(candidate, lambda *_: None, lambda *_: None, lambda _: None)
    try:
        for listener in broker.listeners:
            if listener.needs_sasl:
                authentication.check(listener.name)
            if listener.tls is not None:
                checked_material(candidate, listener.name, listener.protocol, listener.tls.facts)
    except (SecuritySettingsError, TlsSettingsError, OSError) as error:
        return str(error)
    return None


def close_removed_users(broker: Broker, changed: Iterable[str], image: MetadataImage) -> None:
    """Whoever logged in as a user that is gone loses the connection at once."""
    names = set(changed)

    def gone(session: SaslSession, listener: str) -> bool:
        assert session.outcome is not None
        key = sanitize(session.outcome.principal.name)
        by_password = session.mechanism in MECHANISMS and not session.outcome.token_id
        return by_password and key in names and session.mechanism not in image.config("user", key)

    _report(close_sessions(broker, gone))


def close_unknown_plain_users(broker: Broker) -> None:
    """The same for users of PLAIN, who stand in the settings."""
    users = {
        listener.name: plain_users(broker.settings, listener.name)
        for listener in broker.listeners
        if listener.needs_sasl and "PLAIN" in broker.authentication.offered(listener.name)
    }

    def gone(session: SaslSession, listener: str) -> bool:
        assert session.outcome is not None
        return session.mechanism == "PLAIN" and session.outcome.principal.name not in users.get(listener, ())

    _report(close_sessions(broker, gone))


def _report(closed: int) -> None:
    if closed:
        logger.info("%d connections closed: their users are gone", closed)
