"""One client's connection: a raw non-blocking socket, frames in, answers out in the order of the requests.

What may not live here: knowledge of any API. Frames go to the dispatcher; a request that cannot be answered at once
leaves a `Slot` in the queue, and later answers wait behind it. A view into the receive buffer is valid only during
`dispatch`: whoever parks a request copies what it needs.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.broker.outbox import BLOCKED, COLD, DRAINED, FileGone, FileRegion, Outbox
from penstock.broker.wire import MalformedFrame, NotYet
from penstock.security.principal import ANONYMOUS

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.listener import Listener
    from penstock.broker.produce_shape import ProduceShape
    from penstock.broker.stats import ApiStats
    from penstock.security.authorizer import Access
    from penstock.security.sasl_session import SaslSession

logger = logging.getLogger(__name__)

FIRST_BUFFER_BYTES = 16 * 1024
READ_AHEAD_BYTES = 1024 * 1024  # the most that one read takes beyond the frame it is filling
FRAMES_PER_TURN = 256  # one connection's burst must not starve the others
TURN_SECONDS = 0.004  # looked at every eight frames
QUEUED_ANSWERS_BYTES = 1024 * 1024  # more than that is not made before the client has taken it
PARKED_LIMIT = 4096  # requests of one connection that wait for their acknowledgement
GROWTH = 4  # a frame gets memory as its bytes arrive: so many times what is here

_NOTHING = memoryview(b"")
_SIZE = Struct(">i").unpack_from


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


class Connection:
    __slots__ = (
        "__weakref__",
        "access",
        "admitted",
        "again",
        "answer_bytes",
        "authenticated",
        "blocked",
        "broker_id",
        "buffer",
        "busy",
        "claimed_bytes",
        "client_host",
        "client_id",
        "close_when_drained",
        "closed",
        "dirty",
        "dispatcher",
        "end",
        "fd",
        "has_lent",
        "last_active",
        "listener",
        "local_address",
        "loop",
        "max_frame_bytes",
        "metered_at",
        "mute_next",
        "on_close",
        "outbox",
        "principal",
        "produce_meter",
        "produce_shape",
        "proof",
        "reading",
        "sasl",
        "slots",
        "sock",
        "start",
        "unmetered_bytes",
        "unread_bytes",
        "view",
        "warming",
    )

    def __init__(self, sock: socket.socket, client_host: str, listener: Listener, dispatcher: Dispatcher) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.client_host = client_host
        self.local_address = _local_address(sock)
        self.listener = listener
        self.dispatcher = dispatcher
        self.loop: asyncio.AbstractEventLoop = dispatcher.loop
        self.principal = ANONYMOUS
        self.authenticated = False  # by SASL
        self.admitted = listener.open_access  # whether the dispatcher need not look who calls
        # Who has not said yet who it is gets little memory.
        self.max_frame_bytes = listener.first_frame_bytes
        self.broker_id = -1  # the broker that is proven to be at the other end
        self.client_id = ""  # of the fetch in work, while quotas are set
        self.proof: Any = None  # a proof of that under way
        self.access: Access | None = None  # what it may do, as far as it was asked; see security.authorizer
        self.metered_at = -1.0  # the wake-up in which its produces were last counted
        self.unmetered_bytes = 0
        self.produce_meter: Any = None  # (limits, client id on the wire, the meter by them), while quotas are set
        self.produce_shape: ProduceShape | None = None  # what its last produce looked like
        self.sasl: SaslSession | None = None
        self.buffer = bytearray(FIRST_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.start = 0
        self.end = 0
        self.claimed_bytes = 0
        self.has_lent = False  # a log still has to write from our buffer
        self.slots: deque[Slot] = deque()
        self.outbox = self._new_outbox(sock)
        self.last_active = dispatcher.coarse_time
        self.busy = False  # a request is in work that later ones must not overtake
        self.mute_next = 0.0  # seconds to be muted once that is done
        self.blocked = False  # the client does not take what we send
        self.warming = False  # a thread reads a cold region
        self.dirty = False  # has answers to send at the end of this wake-up
        self.again = False  # its next turn is scheduled
        self.answer_bytes = 0  # of large answers that wait for their place
        self.unread_bytes = 0  # of answers that the client does not take
        self.reading = False
        self.closed = False
        self.on_close: Callable[[], None] | None = None  # whoever parked our request forgets it
        self.close_when_drained = False

    def _new_outbox(self, sock: socket.socket) -> Outbox:
        return Outbox(sock)

    # Reading ---------------------------------------------------------------------------------------------------

    def start_reading(self) -> None:
        if not self.reading and not self.closed:
            self.reading = True
            self.loop.add_reader(self.fd, self.on_readable)

    def stop_reading(self) -> None:
        if self.reading:
            self.reading = False
            self.loop.remove_reader(self.fd)

    def receive(self) -> int:
        """Bytes read into the buffer; -1: nothing there now, 0: the client is gone."""
        try:
            return self.sock.recv_into(self.view[self.end :] if self.end else self.view)
        except (BlockingIOError, InterruptedError):
            return -1

    def on_readable(self) -> None:
        if (self.busy or self.blocked or self.again) and self.end > self.start:
            self.stop_reading()  # its request is in work and the next one is here already: let TCP hold the rest
            return
        if self.has_lent:
            self.has_lent = False
            self.dispatcher.broker.replicas.write_staged()
        if self.end == len(self.buffer) and not self.make_room():
            return
        try:
            count = self.receive()
        except (OSError, ssl.SSLError):
            count = 0
        if count <= 0:
            if count == 0:
                self.close()
            return
        self.end += count
        self.last_active = self.dispatcher.wake_up()
        if not self.busy and not self.blocked:
            self.handle_frames()

    def handle_frames(self) -> None:
        """Hand every complete frame of the buffer to the dispatcher, until one must be waited for."""
        must_wait: bool = self.busy or self.blocked or self.closed or self.again
        if must_wait:
            return
        if len(self.slots) > PARKED_LIMIT or self.answer_bytes > QUEUED_ANSWERS_BYTES:
            self.stop_reading()
            return
        dispatcher = self.dispatcher
        max_bytes = self.max_frame_bytes
        budget = FRAMES_PER_TURN
        buffer = self.buffer
        start, end = self.start, self.end
        try:
            while end - start >= 4:
                (size,) = _SIZE(buffer, start)
                if size < 0 or size > max_bytes:
                    logger.info("closing client=%s: frame of %d bytes", self.client_host, size)
                    self.close()
                    return
                frame_end = start + 4 + size
                if frame_end > end:
                    break
                if budget <= 0:
                    self.start = start
                    self.again = True
                    self.loop.call_soon(self.next_turn)
                    return
                budget -= 1
                self.start = frame_end
                dispatcher.dispatch(self, start + 4, frame_end)
                start = frame_end
                if self.busy or self.closed:
                    break
                if not budget & 7 and self.turn_is_over():
                    budget = 0
        except NotYet:
            self.start = start
            self.busy = True
            return
        except MalformedFrame as error:
            logger.info("closing client=%s: %s", self.client_host, error)
            dispatcher.stats.malformed.value += 1
            self.close()
            return
        except Exception:
            logger.exception("closing client=%s: a request could not be handled", self.client_host)
            dispatcher.stats.ran_into_bug("any", "closed")
            self.close()
            return
        if start == end:
            self.start = self.end = 0
            if self.claimed_bytes:
                self.release_claim()

    def turn_is_over(self) -> bool:
        return self.answer_bytes > QUEUED_ANSWERS_BYTES or monotonic() - self.last_active > TURN_SECONDS

    def next_turn(self) -> None:
        """Behind everybody else's: there is one of these callbacks at most."""
        self.again = False
        if not self.closed:
            self.last_active = self.dispatcher.wake_up()
            self.resume()

    def make_room(self) -> bool:
        """The buffer is full: move the open frame to its front, in a larger buffer if it needs one."""
        start, end = self.start, self.end
        held = end - start
        frame_bytes = 4 + _SIZE(self.buffer, start)[0] if held >= 4 else 4
        capacity = len(self.buffer)
        if frame_bytes > FIRST_BUFFER_BYTES and frame_bytes > self.claimed_bytes:
            if not self.dispatcher.memory.claim(self, frame_bytes - self.claimed_bytes):
                self.stop_reading()  # resumed when others have released theirs
                return False
            self.claimed_bytes = frame_bytes
        if frame_bytes > capacity:
            wanted = min(frame_bytes, GROWTH * max(capacity, held))
            capacity = max(wanted, min(2 * capacity, READ_AHEAD_BYTES))
        elif start == 0:
            capacity = max(2 * capacity, frame_bytes)
        elif capacity < READ_AHEAD_BYTES:
            capacity *= 2
        buffer = bytearray(capacity)
        buffer[:held] = self.view[start:end]
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.start = 0
        self.end = held
        return True

    def release_claim(self) -> None:
        self.dispatcher.memory.release(self.claimed_bytes)
        self.claimed_bytes = 0
        if len(self.buffer) > 2 * READ_AHEAD_BYTES:
            self.shrink()

    def shrink(self) -> None:
        """Give a large buffer back; only while nothing is in it."""
        if self.start == self.end and len(self.buffer) > FIRST_BUFFER_BYTES:
            self.buffer = bytearray(FIRST_BUFFER_BYTES)
            self.view = memoryview(self.buffer)
            self.start = self.end = 0

    def resume(self) -> None:
        """Go on with what was read meanwhile, then read on."""
        if self.closed or self.busy or self.blocked:
            return
        if self.end > self.start:
            self.handle_frames()
        if not (self.busy or self.blocked or self.again or self.answer_bytes > QUEUED_ANSWERS_BYTES):
            self.start_reading()

    # Answering -------------------------------------------------------------------------------------------------

    def mark_dirty(self) -> None:
        if not self.dirty:
            self.dirty = True
            dispatcher = self.dispatcher
            dispatcher.dirty_connections.append(self)
            if not dispatcher.flush_scheduled:
                dispatcher.schedule_flush()

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
        self.slots.clear()
        self.outbox.parts.clear()
        self.view = _NOTHING  # whoever still holds this connection must not hold its memory
        self.buffer = bytearray()
        self.listener.connection_closed(self)
        self.sock.close()
