"""Settings of one listener: `listener.name.<listener>.<setting>`, also with a SASL mechanism in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.base.settings.listeners import Listener
from penstock.base.settings.model import Problem, Setting, SettingsError
from penstock.base.settings.table import BROKER_SETTINGS

__all__ = ["LISTENER_PREFIX", "listener_problems", "setting_behind"]

LISTENER_PREFIX = "listener.name."
_MECHANISMS = ("plain.", "scram-sha-256.", "scram-sha-512.", "oauthbearer.", "gssapi.")
_SECURITY = ("ssl.", "sasl.", *_MECHANISMS)


def _without_mechanism(name: str) -> str:
    return next((name.removeprefix(mechanism) for mechanism in _MECHANISMS if name.startswith(mechanism)), name)


def setting_behind(name: str) -> Setting | None:
    """The row that a prefixed name stands for."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name[len(LISTENER_PREFIX) :].partition(".")[2]
    return BROKER_SETTINGS.get(_without_mechanism(rest))


def listener_problems(given: Mapping[str, str], listeners: Iterable[Listener]) -> list[Problem]:
    """Prefixed settings that cannot be used, and those for a security that their listener does not have."""
    known = {f"{LISTENER_PREFIX}{listener.name.lower()}.": listener for listener in listeners}
    problems: list[Problem] = []
    for name, text in given.items():
        if not name.startswith(LISTENER_PREFIX):
            continue
        prefix = next((one for one in known if name.startswith(one)), None)
        rest = name.removeprefix(prefix) if prefix else name[len(LISTENER_PREFIX) :].partition(".")[2]
        setting = BROKER_SETTINGS.get(_without_mechanism(rest))
        if setting is not None:
            try:
                setting.parse(text)
            except SettingsError as error:
                problems += error.problems
                continue
        why = _without_effect(rest, known[prefix] if prefix else None, setting) if rest.startswith(_SECURITY) else ""
        if why:
            problems.append(Problem(name, "", f"Invalid configuration {name}: {why}, so that it would do nothing"))
    return problems


def _without_effect(name: str, listener: Listener | None, setting: Setting | None) -> str:
    if listener is None:
        return "no listener has this name"
    if setting is None:
        return "no setting has this name"
    if name.startswith("ssl.") and not listener.tls:
        return "this listener has no TLS (listener.security.protocol.map)"
    if not name.startswith("ssl.") and not listener.sasl:
        return "this listener has no SASL (listener.security.protocol.map)"
    return ""
