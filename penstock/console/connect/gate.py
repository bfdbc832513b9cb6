"""Who may ask the facade: the console's token, as `Authorization: Bearer` or as the password of basic authentication.

Cookies count for nothing here: a browser sends them to every port of a host.
"""

from __future__ import annotations

import base64
import binascii
import json

from penstock.console.access.guard import Guard, Scope, Send, send_response
from penstock.console.access.logins import Login


class ConnectGate(Guard):
    def _login(self, headers: dict[bytes, bytes]) -> tuple[Login | None, bool]:
        given = headers.get(b"authorization", b"")
        if given[:6].lower() == b"basic ":
            try:
                password = base64.b64decode(given[6:].strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                return None, False
            given = b"Bearer " + password
        return super()._login({b"authorization": given})

    async def _token_login(self, scope: Scope, path: str, send: Send) -> bool:
        return False  # no token in addresses here

    async def _ask_to_log_in(self, scope: Scope, path: str, send: Send) -> None:
        told = {"error_code": 401, "message": "send the console's token, as bearer token or as password"}
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b'Basic realm="penstock"')]
        await send_response(send, 401, json.dumps(told).encode(), headers)
