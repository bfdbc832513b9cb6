"""The receiving half of a connection: bytes into its buffer, whole frames to the dispatcher, a turn for everybody.

A view into the buffer is valid only during `dispatch`: whoever parks a request copies what it needs.
"""

from __future__ import annotations

import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.broker.network.large_frames import PIECE_BYTES, FrameMemory, ReceiveBuffer
from penstock.broker.network.wire import LARGEST_FRAME_BYTES, MalformedFrame, NotYet

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection

logger = logging.getLogger(__name__)

FIRST_BUFFER_BYTES = 16 * 1024
READ_AHEAD_BYTES = 1024 * 1024  # the most that one read takes beyond the frame it is filling
FRAMES_PER_TURN = 256  # one connection's burst must not starve the others
TURN_SECONDS = 0.004  # looked at every eight frames
QUEUED_ANSWERS_BYTES = 1024 * 1024  # more than that is not made before the client has taken it
PARKED_LIMIT = 4096  # requests of one connection that wait for their acknowledgement
GROWTH = 4  # a frame gets memory as its bytes arrive: so many times what is here

LARGEST_USUAL_BYTES = 2 * READ_AHEAD_BYTES  # of a frame: a larger one gets memory of its own
NOTHING = memoryview(b"")
_DROPPED = memoryview(bytearray(PIECE_BYTES))  # whatever falls into it is never read

_SIZE = Struct(">i").unpack_from


class ReceivingHalf(ABC):
    """What `Connection` reads with. It never answers."""

    __slots__ = (
        "__weakref__",
        "again",
        "answer_bytes",
        "blocked",
        "buffer",
        "busy",
        "claimed_bytes",
        "client_host",
        "closed",
        "dispatcher",
        "dropping",
        "end",
        "fd",
        "has_lent",
        "last_active",
        "loop",
        "max_frame_bytes",
        "reading",
        "slots",
        "sock",
        "start",
        "view",
    )

    def __init__(self, sock: socket.socket, client_host: str, dispatcher: Dispatcher, max_frame_bytes: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.client_host = client_host
        self.dispatcher = dispatcher
        self.loop: asyncio.AbstractEventLoop = dispatcher.loop
        self.max_frame_bytes = max_frame_bytes
        self.buffer: ReceiveBuffer = bytearray(FIRST_BUFFER_BYTES)
        self.view = memoryview(self.buffer)  # as much of it as may be filled now
        self.start = 0
        self.end = 0
        self.claimed_bytes = 0
        self.has_lent = False  # a log still has to write from our buffer
        self.slots: deque[Any] = deque()  # answers in their order
        self.answer_bytes = 0  # of large answers that wait for their place
        self.last_active = dispatcher.coarse_time
        self.busy = False  # a request is in work that later ones must not overtake
        self.blocked = False  # the client does not take what we send
        self.again = False  # its next turn is scheduled
        self.dropping = False  # the contents of the frame that arrives cannot matter
        self.reading = False
        self.closed = False

    @property
    @abstractmethod
    def whole(self) -> Connection: ...

    @abstractmethod
    def close(self) -> None: ...

    def start_reading(self) -> None:
        if not self.reading and not self.closed:
            self.reading = True
            self.loop.add_reader(self.fd, self.drop_contents if self.dropping else self.on_readable)

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
        try:
            if self.end == len(self.view) and not self.make_room():
                return
            count = self.receive()
        except (OSError, ssl.SSLError):  # it is gone, or there is no memory for what it sends
            count = 0
        if count <= 0:
            if count == 0:
                self.close()
            return
        self.end += count
        self.last_active = self.dispatcher.wake_up()
        if not self.busy and not self.blocked:
            self.handle_frames()

    def drop_contents(self) -> None:
        """In the place of `on_readable` while a frame arrives whose answer is known: its bytes are counted, not kept.
        The handler then finds zeros behind the head, and refuses them for that."""
        if self.closed or not self.reading:
            return
        frame, held = self.view, self.end
        self.view, self.end = _DROPPED[: len(frame) - held], 0
        try:
            count = self.receive()
        except (OSError, ssl.SSLError):
            count = 0
        self.view, self.end = frame, held + max(count, 0)
        if count == 0:
            self.close()
        elif self.end == len(frame):
            self.dropping = False
            self.loop.add_reader(self.fd, self.on_readable)
            self.last_active = self.dispatcher.wake_up()
            self.handle_frames()
        elif count > 0:
            self.last_active = self.dispatcher.coarse_time

    def handle_frames(self) -> None:
        """Hand every complete frame of the buffer to the dispatcher, until one must be waited for."""
        must_wait: bool = self.busy or self.blocked or self.closed or self.again
        if must_wait:
            return
        if len(self.slots) > PARKED_LIMIT or self.answer_bytes > QUEUED_ANSWERS_BYTES:
            self.stop_reading()
            return
        dispatcher, connection = self.dispatcher, self.whole
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
                    if size > LARGEST_FRAME_BYTES and end - start >= 6:
                        dispatcher.admit_large(buffer, start + 4, size)
                    break
                if budget <= 0:
                    self.start = start
                    self.again = True
                    self.loop.call_soon(self.next_turn)
                    return
                budget -= 1
                self.start = frame_end
                dispatcher.dispatch(connection, start + 4, frame_end)
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
        capacity = len(self.view)
        if frame_bytes > FIRST_BUFFER_BYTES and frame_bytes > self.claimed_bytes:
            if not self.dispatcher.memory.claim(self.whole, frame_bytes - self.claimed_bytes):
                self.stop_reading()  # resumed when others have released theirs
                return False
            self.claimed_bytes = frame_bytes
        if type(self.buffer) is FrameMemory and start == 0 and frame_bytes > capacity:
            self.view = memoryview(self.buffer)[: min(held + PIECE_BYTES, frame_bytes)]
            return True
        if frame_bytes > LARGEST_USUAL_BYTES:
            self.take_buffer(FrameMemory(frame_bytes), frame_bytes)
            if self.dispatcher.contents_matter(self.whole, held, frame_bytes):
                self.view = self.view[: held + PIECE_BYTES]
                return True
            self.dropping = True
            self.loop.add_reader(self.fd, self.drop_contents)
            self.loop.call_soon(self.drop_contents)  # with TLS the rest may be here already, where no poller sees it
            return False
        if frame_bytes > capacity:
            wanted = min(frame_bytes, GROWTH * max(capacity, held))
            capacity = max(wanted, min(2 * capacity, READ_AHEAD_BYTES))
        elif start == 0:
            capacity = max(2 * capacity, frame_bytes)
        elif capacity < READ_AHEAD_BYTES:
            capacity *= 2
        self.take_buffer(bytearray(capacity), capacity)
        return True

    def take_buffer(self, buffer: ReceiveBuffer, room: int) -> None:
        """The open frame moves to another buffer, of which `room` bytes may be filled."""
        held = self.end - self.start
        view = memoryview(buffer)[:room]
        view[:held] = self.view[self.start : self.end]
        self.drop_buffer()
        self.buffer, self.view = buffer, view
        self.start, self.end = 0, held

    def drop_buffer(self) -> None:
        self.view = NOTHING
        if type(self.buffer) is FrameMemory:
            self.buffer.give_back(self.loop)

    def release_claim(self) -> None:
        self.dispatcher.memory.release(self.claimed_bytes)
        self.claimed_bytes = 0
        if len(self.buffer) > LARGEST_USUAL_BYTES:
            self.shrink()

    def shrink(self) -> None:
        """Give a large buffer back; only while nothing is in it."""
        if self.start == self.end and len(self.buffer) > FIRST_BUFFER_BYTES:
            self.drop_buffer()
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
