"""One client's connection: a raw non-blocking socket, frames in, answers out in the order of the requests.

What may not live here: knowledge of any API. Frames go to the dispatcher; a request that cannot be answered at once
leaves a `Slot` in the queue, and later answers wait behind it. Reading is in `receiving`.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.broker.network.outbox import BLOCKED, COLD, DRAINED, FileGone, FileRegion, Outbox
from penstock.broker.network.receiving import PARKED_LIMIT, ReceivingHalf
from penstock.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.fetch.usual import UsualFetch
    from penstock.broker.network.listener import Listener
    from penstock.broker.produce.shape import ProduceShape
    from penstock.broker.stats import ApiStats
    from penstock.security.authorizer import Access
    from penstock.security.sasl_session import SaslSession

logger = logging.getLogger(__name__)


class Slot:
    """The place of one answer in its connection's order. `parts`: None while open, then buffers and file regions."""

    __slots__ = ("parts", "started", "stats")

    def __init__(self, started: float, stats: ApiStats) -> None:
        self.parts: Any = None
        self.started = started
        self.stats = stats


def _local_address(sock: socket.socket) -> tuple[str, int]:
    host, port = sock.getsockname()[:2]
    return host.removeprefix("::ffff:"), port


class Connection(ReceivingHalf):
    __slots__ = (
        "access",
        "admitted",
        "authenticated",
        "broker_id",
        "client_id",
        "close_when_drained",
        "dirty",
        "listener",
        "local_address",
        "metered_at",
        "mute_next",
        "on_close",
        "outbox",
        "principal",
        "produce_meter",
        "produce_shape",
        "proof",
        "sasl",
        "unmetered_bytes",
        "unread_bytes",
        "usual_fetch",
        "warming",
    )

    def __init__(self, sock: socket.socket, client_host: str, listener: Listener, dispatcher: Dispatcher) -> None:
        # Who has not said yet who it is gets little memory.
        super().__init__(sock, client_host, dispatcher, listener.first_frame_bytes)
        self.local_address = _local_address(sock)
        self.listener = listener
        self.principal = ANONYMOUS
        self.authenticated = False  # by SASL
        self.admitted = listener.open_access  # whether the dispatcher need not look who calls
        self.broker_id = -1  # the broker that is proven to be at the other end
        self.client_id = ""  # of the fetch in work: a quota may be set while it waits
        self.proof: Any = None  # a proof of that under way
        self.access: Access | None = None  # what it may do, as far as it was asked; see security.authorizer
        self.metered_at = -1.0  # the wake-up in which its produces were last counted
        self.unmetered_bytes = 0
        self.produce_meter: Any = None  # (limits, client id on the wire, the meter by them), while quotas are set
        self.produce_shape: ProduceShape | None = None  # what its last produce looked like
        self.usual_fetch: UsualFetch | None = None  # what its last fetch looked like
        self.sasl: SaslSession | None = None
        self.outbox = self._new_outbox(sock)
        self.mute_next = 0.0  # seconds to be muted once that is done
        self.warming = False  # a thread reads a cold region
        self.dirty = False  # has answers to send at the end of this wake-up
        self.unread_bytes = 0  # of answers that the client does not take
        self.on_close: Callable[[], None] | None = None  # whoever parked our request forgets it
        self.close_when_drained = False

    def _new_outbox(self, sock: socket.socket) -> Outbox:
        return Outbox(sock)

    @property
    def whole(self) -> Connection:
        return self

    # Answering -------------------------------------------------------------------------------------------------

    def mark_dirty(self) -> None:
        if not self.dirty:
            self.dirty = True
            dispatcher = self.dispatcher
            dispatcher.dirty_connections.append(self)
            if not dispatcher.flush_scheduled:
                dispatcher.schedule_flush()

    def answer(self, data: bytes, started: float, stats: ApiStats) -> None:
        """A whole answer in one piece to the request in dispatch."""
        if self.slots:
            slot = Slot(started, stats)
            slot.parts = (data,)
            self.slots.append(slot)
        else:
            self.outbox.parts.append(data)
            stats.observe(monotonic() - started)
            stats.response_bytes.value += len(data)
        self.answer_bytes += len(data)
        if not self.dirty:
            self.mark_dirty()

    def waited(self) -> None:
        """The request that later ones had to wait for has its answer now, in one piece."""
        if not self.dirty:
            self.mark_dirty()
        if self.end > self.start or not self.reading or self.mute_next or type(self) is not Connection:
            self.work_done()
        else:
            self.busy = False  # nothing came meanwhile

    def finish(self, slot: Slot, parts: Any) -> None:
        """Answer a request that was waited for, and go on with the client's next one."""
        slot.parts = parts
        self.mark_dirty()
        if self.busy:
            self.work_done()

    def work_done(self) -> None:
        """What later requests had to wait for is over."""
        self.busy = False
        if self.mute_next:
            self.mute(self.mute_next)
        elif not self.closed:
            self.loop.call_soon(self.resume)

    def mute(self, seconds: float) -> None:
        """A client over its quota: read nothing more from it for a while (after what is in work)."""
        if self.busy:
            self.mute_next = max(self.mute_next, seconds)
            return
        self.mute_next = 0.0
        self.busy = True
        self.stop_reading()
        self.loop.call_later(seconds, self.unmute)

    def unmute(self) -> None:
        self.busy = False
        self.resume()

    def flush(self, now: float) -> None:
        """Queue the answers that are complete and in order, and send what the socket takes."""
        self.dirty = False
        if self.closed:
            return
        slots = self.slots
        outbox = self.outbox
        parts = outbox.parts
        if len(slots) == 1 and not parts and self.reading and not self.close_when_drained:
            slot = slots[0]
            if slot.parts is not None and len(slot.parts) == 1 and type(answer := slot.parts[0]) is not FileRegion:
                # The usual end of a wake-up: one answer in one piece.
                slots.clear()
                self.answer_bytes = 0
                slot.stats.observe(now - slot.started)
                slot.stats.response_bytes.value += len(answer)
                if not outbox.send_now(answer):
                    self.send()
                return
        while slots:
            slot = slots[0]
            if slot.parts is None:
                break
            slots.popleft()
            parts += slot.parts
            slot.stats.observe(now - slot.started)
            slot.stats.response_bytes.value += sum(map(len, slot.parts))
        if self.answer_bytes:
            self.answer_bytes = sum(len(part) for slot in slots if slot.parts for part in slot.parts)
        if parts and not self.warming:
            self.send()
        elif self.close_when_drained and not slots and not parts:
            self.close()
        if not self.reading and not self.busy and not self.blocked and len(slots) < PARKED_LIMIT:
            self.resume()

    def send(self) -> None:
        if self.closed:
            return
        outbox = self.outbox
        sent_before = outbox.sent_bytes
        by_file_before = outbox.sendfile_bytes
        try:
            status = outbox.flush()
        except FileGone as error:
            # The head of the answer has promised them; the next answer will be told before it promises anything.
            logger.error("closing client=%s: %s", self.client_host, error)
            self.close()
            return
        except OSError as error:
            logger.debug("closing client=%s: %s", self.client_host, error)
            self.close()
            return
        if outbox.sendfile_bytes != by_file_before:
            self.dispatcher.stats.sendfile_bytes.value += outbox.sendfile_bytes - by_file_before
        if status == DRAINED:
            if self.unread_bytes:
                self.dispatcher.memory.hold_unread(self, 0)
            if self.blocked:
                self.blocked = False
                self.loop.remove_writer(self.fd)
                self.last_active = self.dispatcher.coarse_time
                self.resume()
            if self.close_when_drained and not self.slots:
                self.close()
        elif status == BLOCKED:
            self.last_active = self.dispatcher.coarse_time if outbox.sent_bytes > sent_before else self.last_active
            if not self.blocked:
                self.blocked = True
                self.loop.add_writer(self.fd, self.send)
            self.dispatcher.count_unread(self, outbox)
        elif status == COLD:
            if self.blocked:
                self.loop.remove_writer(self.fd)
            self.blocked = True
            self.warming = True
            self.dispatcher.warm(self, outbox.cold_region)

    def warmed(self) -> None:
        self.warming = False
        self.blocked = False
        self.send()
        if not self.blocked and not self.closed:
            self.resume()

    # End -------------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return not self.slots and not self.outbox.parts and not self.busy

    @property
    def stalled(self) -> bool:
        """Whether only its client keeps it from going on."""
        return self.blocked and not self.warming

    def close_gracefully(self) -> None:
        """Answer what is in work, then close."""
        self.stop_reading()
        if not self.slots and not self.outbox.parts:
            self.close()
        else:
            self.close_when_drained = True

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.stop_reading()
        self.loop.remove_writer(self.fd)
        if self.claimed_bytes:
            self.dispatcher.memory.release(self.claimed_bytes)
            self.claimed_bytes = 0
        if self.unread_bytes:
            self.dispatcher.memory.hold_unread(self, 0)
        if self.on_close is not None:
            self.on_close()
            self.on_close = None
        if self.usual_fetch is not None:
            self.usual_fetch.end()
            self.usual_fetch = None
        self.slots.clear()
        self.outbox.parts.clear()
        self.drop_buffer()  # whoever still holds this connection must not hold its memory
        self.buffer = bytearray()
        self.listener.connection_closed(self)
        self.sock.close()
