"""No security setting is only there to be believed in: each one acts, with a story that shows it, or is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from penstock.base.settings import BROKER_SETTINGS, Effect, Settings, SettingsError
from penstock.base.settings.describe import broker_problems
from penstock.base.settings.model import BOOLEAN, DOUBLE, INT, LIST, LONG, SHORT, Scope, Setting
from penstock.base.settings.table_security import SECURITY

TESTS = Path(__file__).parents[1]
TLS, SASL = "security/test_tls_listeners.py", "security/test_sasl_clients.py"
SESSIONS, CLUSTER = "security/test_sessions_and_tokens.py", "security/test_secured_cluster.py"
VALIDATION = "security/test_token_validation.py"

SHOWN_BY: dict[str, tuple[str, str]] = {
    "allow.everyone.if.no.acl.found": ("security/test_acls.py", "test_super_users_and_resources_without_rules"),
    "authorizer.class.name": (TLS, "test_a_certificate_names_its_client_by_rules"),
    "connection.failed.authentication.delay.ms": (VALIDATION, "test_a_refusal_takes_its_time"),
    "connections.max.reauth.ms": (SESSIONS, "test_a_session_that_is_not_renewed_ends"),
    "control.plane.listener.name": (CLUSTER, "test_clients_are_not_served_on_the_controllers_listener"),
    "delegation.token.expiry.check.interval.ms": (VALIDATION, "test_tokens_end_by_themselves"),
    "delegation.token.expiry.time.ms": (VALIDATION, "test_tokens_end_by_themselves"),
    "delegation.token.max.lifetime.ms": (VALIDATION, "test_a_token_lives_no_longer_than_the_broker_allows"),
    "delegation.token.secret.key": (SESSIONS, "test_tokens_are_for_named_clients_of_brokers_that_have_a_key"),
    "max.connection.creation.rate": (TLS, "test_new_connections_come_only_so_fast"),
    "penstock.inter.broker.secret": (
        "security/test_speaking_as_a_broker.py",
        "test_a_stranger_does_not_move_the_high_watermark",
    ),
    "penstock.oauthbearer.algorithms": (VALIDATION, "test_only_listed_algorithms_sign"),
    "penstock.zookeeper.auth": (CLUSTER, "test_nobody_but_brokers_reads_secrets_in_zookeeper"),
    "sasl.enabled.mechanisms": (SASL, "test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are"),
    "sasl.jaas.config": (SASL, "test_librdkafka_writes_and_reads"),
    "sasl.mechanism.inter.broker.protocol": (CLUSTER, "test_a_cluster_forms_replicates_and_commits_over_sasl_ssl"),
    "sasl.oauthbearer.clock.skew.seconds": (VALIDATION, "test_clocks_may_differ_a_little"),
    "sasl.oauthbearer.expected.audience": (SASL, "test_a_token_that_proves_nothing_is_refused"),
    "sasl.oauthbearer.expected.issuer": (SASL, "test_a_token_that_proves_nothing_is_refused"),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": (VALIDATION, "test_keys_are_read_again"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": (VALIDATION, "test_keys_are_not_asked_for_too_often"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": (VALIDATION, "test_keys_are_not_asked_for_too_often"),
    "sasl.oauthbearer.jwks.endpoint.url": (SASL, "test_librdkafka_writes_and_reads"),
    "sasl.oauthbearer.sub.claim.name": (VALIDATION, "test_another_claim_may_carry_the_name"),
    "sasl.server.max.receive.size": (SASL, "test_before_authentication_nothing_is_answered"),
    "security.inter.broker.protocol": ("base/test_settings.py", "test_security_that_would_not_be_there_is_refused"),
    "ssl.allow.dn.changes": (TLS, "test_a_certificate_for_another_name_or_garbage_leaves_the_old_one"),
    "ssl.allow.san.changes": (TLS, "test_a_certificate_with_fewer_names_needs_a_word"),
    "ssl.cipher.suites": (TLS, "test_suites_are_limited"),
    "ssl.client.auth": (TLS, "test_client_certificates_are_demanded_as_soon_as_somebody_says_so"),
    "ssl.enabled.protocols": (TLS, "test_versions_are_limited"),
    "ssl.endpoint.identification.algorithm": (
        VALIDATION,
        "test_brokers_check_each_others_host_names_unless_told_not_to",
    ),
    "ssl.key.password": (VALIDATION, "test_an_encrypted_key_needs_its_password"),
    "ssl.keystore.certificate.chain": (
        "broker/test_broker_tls.py",
        "test_key_and_certificate_may_stand_in_the_settings_themselves",
    ),
    "ssl.keystore.key": (
        "broker/test_broker_tls.py",
        "test_key_and_certificate_may_stand_in_the_settings_themselves",
    ),
    "ssl.keystore.location": (TLS, "test_a_certificate_may_be_changed_by_configuration_and_a_bad_one_is_refused"),
    "ssl.keystore.password": (TLS, "test_a_pkcs12_store_is_read"),
    "ssl.keystore.type": (TLS, "test_what_tls_cannot_do_is_refused_at_the_start"),
    "ssl.principal.mapping.rules": (TLS, "test_a_certificate_names_its_client_by_rules"),
    "ssl.truststore.certificates": (VALIDATION, "test_trusted_certificates_come_as_text_or_as_a_store"),
    "ssl.truststore.location": (TLS, "test_client_certificates_are_demanded_as_soon_as_somebody_says_so"),
    "ssl.truststore.password": (VALIDATION, "test_trusted_certificates_come_as_text_or_as_a_store"),
    "ssl.truststore.type": (VALIDATION, "test_trusted_certificates_come_as_text_or_as_a_store"),
    "super.users": (TLS, "test_a_certificate_names_its_client_by_rules"),
    "zookeeper.set.acl": (CLUSTER, "test_nobody_but_brokers_reads_secrets_in_zookeeper"),
    "zookeeper.ssl.client.enable": ("store/test_secured_zookeeper.py", "test_certificates_open_the_secure_port"),
    "zookeeper.ssl.truststore.location": (
        "store/test_secured_zookeeper.py",
        "test_a_server_of_another_authority_is_not_trusted",
    ),
}


def another_value(setting: Setting) -> str:
    """One that passes every check but is not the default."""
    if setting.type == BOOLEAN:
        return "false" if setting.default else "true"
    if setting.type in (INT, LONG, SHORT):
        return str((setting.default or 0) + 1)
    if setting.type == DOUBLE:
        return "0.5"
    if setting.type == LIST:
        return "OTHER"
    return "ES256" if "algorithm" in setting.name and setting.check else "other"


def refused() -> list[Setting]:
    return [setting for setting in BROKER_SETTINGS.values() if setting.effect == Effect.REFUSED]


def test_every_security_setting_acts_or_is_refused() -> None:
    assert not [setting.name for setting in SECURITY if setting.effect not in (Effect.YES, Effect.REFUSED)]


@pytest.mark.parametrize("name", sorted({s.name for s in SECURITY if s.effect == Effect.YES} | set(SHOWN_BY)))
def test_a_story_shows_that_it_acts(name: str) -> None:
    assert BROKER_SETTINGS[name].effect == Effect.YES
    file, story = SHOWN_BY[name]
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert story in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("setting", refused(), ids=lambda setting: setting.name)
def test_what_does_not_act_is_refused(setting: Setting) -> None:
    value = another_value(setting)
    with pytest.raises(SettingsError, match="no effect") as problem:
        Settings.load(None, {setting.name: value, "zookeeper.connect": "127.0.0.1:1"})
    assert not setting.sensitive or f"value {value}" not in str(problem.value)
    assert broker_problems({setting.name: value}, whole_cluster=False)
    if setting.scope == Scope.PER_BROKER:
        assert broker_problems({f"listener.name.plaintext.{setting.name}": value}, whole_cluster=False)
