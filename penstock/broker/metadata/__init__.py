"""What clients are told about topics and leaders, and topics that come into being by being asked for."""
