"""One cluster as its user reaches it: where it is, how to get in, and how to say that it is not there.

A profile that is named (`-p`, `PENSTOCK_PROFILE`) is taken whole: the environment adds nothing to it, and its password
goes nowhere else. Without one, `PENSTOCK_BOOTSTRAP` and `PENSTOCK_PROPERTIES` say where the cluster is, and where they
and `-b` are silent, the profile `default`. `-b` and `-X name=value` come last. Names are those of librdkafka.
"""

from __future__ import annotations

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.operate import profiles
from penstock.operate.client_properties import insist_on_known
from penstock.operate.errors import NOBODY, ExitCode, UserError, usage_error

if TYPE_CHECKING:
    from penstock.client.sync import SyncClient

log = logging.getLogger(__name__)

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class Session:
    """One cluster: its properties and a client. May be shared between threads."""

    client_id = "penstock"

    def __init__(
        self,
        bootstrap: str | None,
        profile: str | None,
        properties: list[str] | None,
        patience_seconds: float = 10.0,
    ) -> None:
        self.patience_seconds = patience_seconds
        self.properties = self._collect(bootstrap, profile, properties or [])

    @staticmethod
    def _collect(bootstrap: str | None, profile: str | None, given: list[str]) -> dict[str, str]:
        collected: dict[str, str] = {"bootstrap.servers": DEFAULT_BOOTSTRAP}
        if bootstrap == "" or profile == "":
            # An unset variable of a script; the cluster that is meant by default would be another one.
            raise usage_error(
                f"{'-b' if bootstrap == '' else '-p'} is empty", "-b HOST:PORT or -p PROFILE, or leave it out"
            )
        if profile is not None:
            collected |= _of_profile(profile)
        else:
            collected |= _of_environment(is_addressed=bootstrap is not None)
        chosen = [_property(pair, "-X") for pair in given]
        for name, value in chosen:
            collected[name] = value
        insist_on_known((name for name, _ in chosen), "-X")
        if bootstrap:
            collected["bootstrap.servers"] = bootstrap
        return collected

    @property
    def bootstrap(self) -> str:
        return self.properties["bootstrap.servers"]

    @cached_property
    def client(self) -> SyncClient:
        """Our protocol client, for admin calls."""
        from penstock.client.retry import RetryPolicy
        from penstock.client.sync import SyncClient

        # A person waits: tell after a few seconds that nobody answers, not after a minute.
        try:
            retry = RetryPolicy(total_timeout_s=self.patience_seconds)
            return SyncClient.from_properties(self.properties, retry=retry, explain_silence=True)
        except ValueError as error:
            raise usage_error(str(error), "it comes from -b, -X, the environment or the profile") from error

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()

    def librdkafka(self, **more: Any) -> dict[str, Any]:
        """Configuration for a producer or consumer of confluent-kafka."""
        return {"client.id": self.client_id, "log_level": 2, **self.properties, **more}

    def note(self, line: str) -> None:
        """Something to know beside the result."""
        log.warning(line)

    def unreachable(self, detail: str) -> UserError:
        return UserError(f"no broker answers at {self.bootstrap}: {detail}", NOBODY, ExitCode.UNREACHABLE)


def _of_profile(name: str | None) -> dict[str, str]:
    found = profiles.load(name)
    insist_on_known(found, f"profile {name or 'default'}")
    return found


def _of_environment(is_addressed: bool) -> dict[str, str]:
    """What the shell says of the cluster; `is_addressed`: the command line has named one."""
    profile, bootstrap = os.environ.get("PENSTOCK_PROFILE"), os.environ.get("PENSTOCK_BOOTSTRAP")
    pairs = [pair.strip() for pair in os.environ.get("PENSTOCK_PROPERTIES", "").split(";") if pair.strip()]
    if profile:
        if bootstrap or pairs:
            other = "PENSTOCK_BOOTSTRAP" if bootstrap else "PENSTOCK_PROPERTIES"
            raise usage_error(f"PENSTOCK_PROFILE and {other} are both set", "unset one: a profile is taken whole")
        return _of_profile(profile)
    if not (bootstrap or pairs or is_addressed):
        return _of_profile(None)
    found = dict(_property(pair, "PENSTOCK_PROPERTIES") for pair in pairs)
    insist_on_known(found, "PENSTOCK_PROPERTIES")
    return found | ({"bootstrap.servers": bootstrap} if bootstrap else {})


def _property(pair: str, origin: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name.strip():
        raise usage_error(f"{origin} {pair!r} is not name=value", "for example -X security.protocol=SASL_SSL")
    return name.strip(), value.strip()
