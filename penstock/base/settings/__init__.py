"""The settings of a broker and its topics: one table that gives values, checks, DescribeConfigs and the docs."""

from __future__ import annotations

from penstock.base.settings.listeners import Listener
from penstock.base.settings.log_config import LogConfig, topic_problems
from penstock.base.settings.model import Effect, Problem, Scope, Setting, SettingsError, Source
from penstock.base.settings.settings import Settings
from penstock.base.settings.table import BROKER_SETTINGS, TOPIC_SETTINGS

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "Effect",
    "Listener",
    "LogConfig",
    "Problem",
    "Scope",
    "Setting",
    "Settings",
    "SettingsError",
    "Source",
    "topic_problems",
]
