"""The Kafka wire protocol: messages, framing, record batches, codecs and error codes. No I/O lives here."""
