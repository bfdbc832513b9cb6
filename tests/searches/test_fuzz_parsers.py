"""Everything else that reads bytes from outside: each refuses by its own exception, whatever it is given.

The sound examples are wounded at random; `PENSTOCK_FUZZ_SECONDS` gives each parser more than its part of a second.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.base.settings import Settings, SettingsError
from penstock.base.settings.properties import parse_properties
from penstock.cluster import own_znodes, znodes
from penstock.cluster.image_codec import ImageFormatError, decode_answer, decode_push
from penstock.pipelines import spec_sql, spec_yaml
from penstock.pipelines.spec import SpecError
from penstock.protocol.codecs import Codec, CodecError, compress, decompress
from penstock.security.acl_model import PatternType, ResourceType
from penstock.security.acl_store import CHANGES, decode_acls, decode_note
from penstock.security.broker_proof import ProofFailed, read_message
from penstock.security.exchange import AuthenticationFailed
from penstock.security.mechanisms import PlainExchange, ScramExchange
from penstock.security.oauth import OAuthExchange, OAuthRules, TokenRefused, TokenValidator
from penstock.security.scram import ScramCredential, make_credential
from penstock.security.tokens import DelegationToken
from penstock.testing.mutation import mutated

SECONDS = float(os.environ.get("PENSTOCK_FUZZ_SECONDS", "12")) / 30
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "38"))

_YAML = """
name: orders
sources:
  - name: raw
    topic: orders
tables:
  - name: clean
    from: raw
    where: "value is not null"
sinks:
  - topic: clean-orders
    from: clean
"""
_PROPERTIES = (
    "node.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\nlog.dirs=/var/lib/x\nlog.retention.ms=\\\n  100\n# end\n"
)


_KEY = ec.generate_private_key(ec.SECP256R1())
_ODD = [b"[" * 3000 + b"]" * 3000, b'{"version":1e999,"broker":Infinity}', b'{"a":' * 2000 + b"1" + b"}" * 2000]


class _Keys:
    async def find(self, _key_id: str) -> Any:
        return jwt.PyJWK(json.loads(jwt.algorithms.ECAlgorithm.to_jwk(_KEY.public_key())), "ES256")


_KEYS: Any = _Keys()
_SOUND_TOKEN = (
    b"n,,\x01auth=Bearer %s\x01\x01"
    % jwt.encode({"sub": "anna", "exp": 4_000_000_000}, _KEY, "ES256", headers={"kid": "one"}).encode()
)
_DEEP_TOKEN = b"n,,\x01auth=Bearer %s.e30.AA\x01\x01" % base64.urlsafe_b64encode(b"[" * 5000).rstrip(b"=")


class Parser(NamedTuple):
    name: str
    sound: list[bytes]
    parse: Callable[[bytes], Any]
    refuses: tuple[type[Exception], ...]


def _text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(data.decode("utf-8", "replace"))


def _plain(data: bytes) -> None:
    asyncio.run(PlainExchange(lambda: {"anna": "secret"}).step(data))


def _scram(data: bytes) -> None:
    credential = make_credential("SCRAM-SHA-256", "secret")
    exchange = ScramExchange("SCRAM-SHA-256", lambda *_: credential, lambda *_: None, lambda *_: None)

    async def both() -> None:
        await exchange.step(data)
        await exchange.step(data)

    asyncio.run(both())


def _settings(text: str) -> None:
    Settings.load(None, {"log.dirs": tempfile.gettempdir(), **parse_properties(text)})


def _jwt(data: bytes) -> None:
    rules = OAuthRules(algorithms=("RS256", "ES256"), audiences=(), issuer=None)
    asyncio.run(OAuthExchange(TokenValidator(_KEYS, rules).validate).step(data))


_NODES: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "topic": (
        znodes.dump({"version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": {"0": [1, 2]},
                     "adding_replicas": {}, "removing_replicas": {}}),
        lambda data: znodes.decode_topic("t", data, 0),
    ),
    "partition state": (
        znodes.dump({"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2]}),
        lambda data: znodes.decode_state("/s", data, 0),
    ),
    "replica notes": (
        b'{"version":1,"new":{"0":[1]},"offline":{"0":[2]}}',
        partial(own_znodes.decode_replica_notes, "/n"),
    ),
    "tombstone": (b'{"version":1,"topic":"t","brokers":[1,2]}', partial(own_znodes.decode_tombstone, "/n")),
    "broker": (
        b'{"version":5,"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"host":"h","port":1,"jmx_port":-1,"timestamp":"1","features":{},"rack":"r"}',
        lambda data: znodes.decode_broker(1, data, 7),
    ),
    "config": (b'{"version":1,"config":{"retention.ms":"1"}}', partial(znodes.decode_config, "/c")),
    "config change": (b'{"version":2,"entity_path":"topics/t"}', partial(znodes.decode_config_change, "/c")),
    "missed": (b'{"controller_epoch":1,"brokers":[1,2]}', lambda data: own_znodes.decode_missed(data, 1)),
    "controller": (znodes.encode_controller(1, 7), znodes.decode_controller),
    "partition list": (znodes.encode_partition_list([("t", 0)]), partial(znodes.decode_partition_list, "/p")),
    "reassignments": (
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}', znodes.decode_reassignments,
    ),
    "log dir event": (b'{"version":1,"broker":1,"event":1}', partial(znodes.decode_log_dir_event, "/e")),
    "producer ids": (b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
                     znodes.decode_producer_id_block_end),
    "cluster id": (znodes.encode_cluster_id("abc"), znodes.decode_cluster_id),
    "ACLs": (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}',
        partial(decode_acls, "/a", (ResourceType.TOPIC, PatternType.LITERAL, "t")),
    ),
    "ACL change": (b"TOPIC:t", partial(decode_note, CHANGES[PatternType.LITERAL])),
    "prefixed ACL change": (
        b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}',
        partial(decode_note, CHANGES[PatternType.PREFIXED]),
    ),
}  # fmt: skip

PARSERS = [
    Parser(
        "token",
        [_SOUND_TOKEN, b"n,,\x01auth=Bearer a.b.c\x01\x01", _DEEP_TOKEN],
        _jwt,
        (AuthenticationFailed, TokenRefused),
    ),
    Parser(
        "delegation token",
        [
            b'{"version":3,"owner":"User:a","renewers":["User:b"],"issueTimestamp":"1","maxTimestamp":"3",'
            b'"expirationTimestamp":"2","tokenId":"x"}',
            *_ODD,
        ],
        DelegationToken.decode,
        (ValueError,),
    ),
    Parser("proof", [b'{"nonce":"00"}', *_ODD], read_message, (ProofFailed,)),
    *(
        Parser(f"znode of {name}", [sound, *_ODD], decode, (znodes.MalformedNode,))
        for name, (sound, decode) in _NODES.items()
    ),
    Parser("plain", [b"\0anna\0secret"], _plain, (AuthenticationFailed,)),
    Parser(
        "scram", [b"n,,n=anna,r=fyko+d2lbbFgONRv9qkxdawL", b"c=biws,r=abc,p=dGVzdA=="], _scram, (AuthenticationFailed,)
    ),
    Parser(
        "scram credential",
        [str(make_credential("SCRAM-SHA-256", "x")).encode()],
        _text(ScramCredential.parse),
        (ValueError,),
    ),
    Parser("image push", [compress(Codec.ZSTD, b'{"a": 1}'), b'{"a": 1}'], decode_push, (ImageFormatError,)),
    Parser("image answer", [b'{"error": 0}', b"{}"], decode_answer, (ImageFormatError,)),
    Parser("server.properties", [_PROPERTIES.encode()], _text(_settings), (SettingsError,)),
    Parser("pipeline in YAML", [_YAML.encode()], _text(spec_yaml.load_text), (SpecError,)),
    Parser("pipeline in SQL", [b"CREATE SINK a AS SELECT * FROM b;"], _text(spec_sql.load_text), (SpecError,)),
    *(
        Parser(
            codec.kafka_name,
            [compress(codec, b"abc" * 500)],
            lambda data, c=codec: decompress(c, data, 1 << 20),
            (CodecError,),
        )
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    ),
]


@pytest.mark.parametrize("parser", PARSERS, ids=[parser.name for parser in PARSERS])
def test_a_parser_refuses_by_its_own_word(parser: Parser, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    ends = time.monotonic() + SECONDS
    tried = 0
    while time.monotonic() < ends or tried < 20:
        data = mutated(rng.choice(parser.sound), rng)
        tried += 1
        began = time.process_time()
        try:
            parser.parse(data)
        except parser.refuses:
            pass
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error} (seed {SEED}) by {data!r}")
        assert time.process_time() - began < 2.0, data
