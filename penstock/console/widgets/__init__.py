"""Widgets that pages share. They take data and callbacks; none of them asks a cluster."""
