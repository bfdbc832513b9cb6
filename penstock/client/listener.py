"""What a listener speaks, found out by asking it: for the word to somebody whose connection was closed in silence."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.connection import Connection
from penstock.client.errors import AuthenticationFailed, ClientError, ConnectionLost
from penstock.client.security import Security
from penstock.protocol import messages

ASK_SECONDS = 1.0
_WITHOUT_TLS = Security()
_WITH_TLS = Security(protocol="SSL", verify_certificate=False, verify_host_name=False)  # no secret goes there


async def refuse_another_protocol(addresses: Iterable[tuple[str, int]], ours: Security) -> None:
    """Raises if the first listener that answers speaks another security.protocol than we do."""
    for host, port in addresses:
        found = await spoken_at(host, port)
        if found is None:
            continue
        protocol, mechanisms = found
        if protocol == ours.protocol:
            return
        wanted = [f"security.protocol={protocol}"]
        if protocol.endswith("SSL") and not ours.tls:
            wanted.append("ssl.ca.location")
        if mechanisms:
            wanted += [f"sasl.mechanism={' or '.join(mechanisms)}", "sasl.username", "sasl.password"]
        raise AuthenticationFailed(
            f"{host}:{port} speaks {protocol} and was asked in {ours.protocol}: it takes {', '.join(wanted)}"
        )


async def spoken_at(host: str, port: int) -> tuple[str, tuple[str, ...]] | None:
    """The security.protocol of a listener and its SASL mechanisms; None if nothing there speaks Kafka."""
    for security, name in ((_WITHOUT_TLS, "PLAINTEXT"), (_WITH_TLS, "SSL")):
        try:
            connection = await Connection.open(host, port, "penstock", security, ASK_SECONDS, ASK_SECONDS)
        except ConnectionLost:
            if security.tls:
                return name, ()  # TLS was spoken; who has no certificate of their own is not let in further
            continue
        except ClientError:
            continue
        try:
            mechanisms = await _mechanisms(connection)
        except ClientError:
            return name, ()
        finally:
            connection.close()
        return (f"SASL_{name}" if mechanisms else name), mechanisms
    return None


async def _mechanisms(connection: Connection) -> tuple[str, ...]:
    """A listener with SASL answers a mechanism that does not exist with those that do, one without it with none."""
    request = messages.api("sasl_handshake").Request(mechanism="WHICH-ARE-THERE")
    return tuple((await connection.request("sasl_handshake", request, version=1)).mechanisms)
