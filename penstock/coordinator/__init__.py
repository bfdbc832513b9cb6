"""Coordinators: state machines whose only memory is a partition of an internal topic (groups, transactions)."""
