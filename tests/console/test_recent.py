"""What many open pages ask at the same time is asked once."""

from __future__ import annotations

from penstock.console.cluster import ConsoleSession
from penstock.console.recent import FRESH_SECONDS, Recent


def test_pages_share_an_answer_until_it_is_old_or_something_is_changed() -> None:
    now, asked = [100.0], []
    recent, session, other = Recent(lambda: now[0]), ConsoleSession({}), ConsoleSession({})

    def ask() -> int:
        asked.append(now[0])
        return len(asked)

    assert [recent.of(session, "moving", ask) for _ in range(50)] == [1] * 50
    assert recent.of(other, "moving", ask) == 2, "who asks with other credentials may be told something else"
    now[0] += FRESH_SECONDS + 0.1
    assert recent.of(session, "moving", ask) == 3
    recent.forget()
    assert recent.of(session, "moving", ask) == 4
