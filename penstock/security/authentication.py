"""Which mechanisms each listener offers, and what they check credentials against. Settings in, exchanges out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.client.jaas import parse_jaas
from penstock.security.certificate_names import MappingRules
from penstock.security.exchange import Authenticated, Exchange
from penstock.security.mechanisms import PlainExchange, ScramExchange, TokenOwner
from penstock.security.scram import MECHANISMS as SCRAM_MECHANISMS
from penstock.security.scram import ScramCredential

if TYPE_CHECKING:
    from penstock.base.settings import Settings
    from penstock.client.security import Security
    from penstock.security.oauth import TokenValidator

__all__ = ["Authentication", "SecuritySettingsError", "inter_broker_security", "plain_users"]

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
OFFERED = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
_JAAS = "sasl.jaas.config"
_USER_OPTION = "user_"

FindCredential = Callable[[str, str], ScramCredential | None]
"""(mechanism, name of a user or id of a token) → credential."""


class SecuritySettingsError(Exception):
    """A listener cannot be opened as its settings want; the message says what to change."""


def _jaas(settings: Settings, listener: str, mechanism: str) -> Any:
    text = settings.mechanism_value(listener, mechanism, _JAAS)
    if not text:
        return None
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise SecuritySettingsError(f"listener {listener}: {_JAAS} of {mechanism} is not understood: {error}") from None


def plain_users(settings: Settings, listener: str) -> dict[str, str]:
    """Name → password, from `user_<name>="<password>"` of the listener's JAAS entry."""
    entry = _jaas(settings, listener, PLAIN)
    if entry is None:
        return {}
    if entry.module_name != "PlainLoginModule":
        raise SecuritySettingsError(f"listener {listener}: {_JAAS} of PLAIN names {entry.module}, not PlainLoginModule")
    start = len(_USER_OPTION)
    return {name[start:]: value for name, value in entry.options.items() if name.startswith(_USER_OPTION)}


class Authentication:
    """Of one broker, for all its listeners."""

    def __init__(
        self, settings: Settings, find_user: FindCredential, find_token: FindCredential, token_owner: TokenOwner
    ) -> None:
        self._settings = settings
        self._find_user = find_user
        self._find_token = find_token
        self._token_owner = token_owner
        self._plain: dict[str, tuple[Any, dict[str, str]]] = {}
        self._validators: dict[str, TokenValidator] = {}
        self.mapping_rules = _mapping_rules(settings)

    def offered(self, listener: str) -> tuple[str, ...]:
        return tuple(self._settings.listener_value(listener, "sasl.enabled.mechanisms"))

    def check(self, listener: str) -> None:
        """Whether clients could log in at all; raises SecuritySettingsError."""
        for mechanism in self.offered(listener):
            if mechanism == "GSSAPI":
                raise SecuritySettingsError(
                    f"listener {listener}: GSSAPI (Kerberos) is not offered; set sasl.enabled.mechanisms to some of"
                    f" {', '.join(OFFERED)}"
                )
            if mechanism not in OFFERED:
                raise SecuritySettingsError(
                    f"listener {listener}: sasl.enabled.mechanisms holds {mechanism}; offered are {', '.join(OFFERED)}"
                )
            if mechanism == PLAIN and not plain_users(self._settings, listener):
                raise SecuritySettingsError(
                    f"listener {listener}: PLAIN has no users; set listener.name.{listener.lower()}.plain.{_JAAS} to a"
                    ' PlainLoginModule with user_<name>="<password>"'
                )
            if mechanism == OAUTHBEARER:
                self._validator(listener)
        if not self.offered(listener):
            raise SecuritySettingsError(f"listener {listener}: sasl.enabled.mechanisms is empty")

    def exchange(self, listener: str, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainExchange(lambda: self._users_of(listener))
        if mechanism in SCRAM_MECHANISMS:
            return ScramExchange(mechanism, self._find_user, self._find_token, self._token_owner)
        from penstock.security.oauth import OAuthExchange

        return OAuthExchange(self._validator(listener).validate)

    def _users_of(self, listener: str) -> Mapping[str, str]:
        """As the settings say now: a dynamic change counts for the next login."""
        text = self._settings.mechanism_value(listener, PLAIN, _JAAS)
        known = self._plain.get(listener)
        if known is None or known[0] != text:
            known = self._plain[listener] = (text, plain_users(self._settings, listener))
        return known[1]

    def lifetime_ms(self, listener: str, mechanism: str, outcome: Authenticated, now_ms: int) -> int:
        """How long the session lasts before the client must authenticate again (KIP-368); 0: without end."""
        limit = int(self._settings.mechanism_value(listener, mechanism, "connections.max.reauth.ms") or 0)
        if outcome.expires_at_ms is None:
            return limit
        # A credential that ends by itself ends its session, whether or not sessions are limited otherwise.
        left = max(1, outcome.expires_at_ms - now_ms)
        return min(limit, left) if limit > 0 else left

    def _validator(self, listener: str) -> TokenValidator:
        validator = self._validators.get(listener)
        if validator is None:
            validator = self._validators[listener] = _token_validator(self._settings, listener)
        return validator


def _mapping_rules(settings: Settings) -> MappingRules:
    try:
        return MappingRules(settings["ssl.principal.mapping.rules"] or "DEFAULT")
    except ValueError as error:
        raise SecuritySettingsError(f"ssl.principal.mapping.rules: {error}") from None


def _token_validator(settings: Settings, listener: str) -> TokenValidator:
    from penstock.security.key_set import ALGORITHMS, KeySet
    from penstock.security.oauth import OAuthRules, TokenValidator

    def value(name: str) -> Any:
        return settings.mechanism_value(listener, OAUTHBEARER, name)

    address = value("sasl.oauthbearer.jwks.endpoint.url")
    if not address:
        raise SecuritySettingsError(
            f"listener {listener}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url (https:// or file://):"
            " tokens that nobody signed are not accepted"
        )
    algorithms = tuple(value("penstock.oauthbearer.algorithms"))
    bad = [name for name in algorithms if name not in ALGORITHMS]
    if bad or not algorithms:
        raise SecuritySettingsError(
            f"penstock.oauthbearer.algorithms: {', '.join(bad) or 'empty'}; allowed are {', '.join(ALGORITHMS)}"
        )
    keys = KeySet(
        address,
        value("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
        value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
    )
    rules = OAuthRules(
        algorithms,
        tuple(value("sasl.oauthbearer.expected.audience") or ()),
        value("sasl.oauthbearer.expected.issuer") or None,
        value("sasl.oauthbearer.clock.skew.seconds"),
        value("sasl.oauthbearer.sub.claim.name"),
        value("sasl.oauthbearer.scope.claim.name"),
    )
    return TokenValidator(keys, rules)


def inter_broker_security(settings: Settings, listener: str, protocol: str) -> Security | None:
    """How this broker logs in at that listener of others; None where nothing is needed."""
    from penstock.client.security import Security

    if protocol == "PLAINTEXT":
        return None
    context = None
    if protocol in ("SSL", "SASL_SSL"):
        from penstock.security.tls_material import TlsMaterial

        context = TlsMaterial(settings, listener, protocol).client_context
    if protocol == "SSL":
        return Security(protocol=protocol, context_factory=context)
    mechanism = str(settings.listener_value(listener, "sasl.mechanism.inter.broker.protocol"))
    if mechanism not in (PLAIN, *SCRAM_MECHANISMS):
        raise SecuritySettingsError(
            f"listener {listener}: brokers log in by sasl.mechanism.inter.broker.protocol, now {mechanism}; it can be"
            f" {', '.join((PLAIN, *SCRAM_MECHANISMS))}"
        )
    if mechanism not in settings.listener_value(listener, "sasl.enabled.mechanisms"):
        raise SecuritySettingsError(
            f"listener {listener}: sasl.mechanism.inter.broker.protocol={mechanism} is not in sasl.enabled.mechanisms"
        )
    entry = _jaas(settings, listener, mechanism)
    username, password = ("", "") if entry is None else (entry.options.get("username"), entry.options.get("password"))
    if not username or not password:
        raise SecuritySettingsError(
            f"listener {listener}: brokers need a name of their own: username and password in"
            f" listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
        )
    return Security(
        protocol=protocol, mechanism=mechanism, username=username, password=password, context_factory=context
    )
