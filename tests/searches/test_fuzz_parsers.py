"""Everything else that reads bytes from outside: each refuses by its own exception, whatever it is given.

The sound examples are wounded at random; `PENSTOCK_FUZZ_SECONDS` gives each parser more than the suite's second.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.base.settings import Settings, SettingsError
from penstock.base.settings.properties import parse_properties
from penstock.cluster.image_codec import ImageFormatError, decode_answer, decode_push
from penstock.pipelines import spec_sql, spec_yaml
from penstock.pipelines.spec import SpecError
from penstock.protocol.codecs import Codec, CodecError, compress, decompress
from penstock.security.exchange import AuthenticationFailed
from penstock.security.mechanisms import PlainExchange, ScramExchange
from penstock.security.scram import ScramCredential, make_credential
from penstock.testing.mutation import mutated

SECONDS = float(os.environ.get("PENSTOCK_FUZZ_SECONDS", "12")) / 12
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


PARSERS = [
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
