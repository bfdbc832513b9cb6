"""Ports of tests: whoever asks, in whichever process, is given others than everybody else."""

from __future__ import annotations

import multiprocessing
import socket

from penstock.testing import ports


def _ask(times: int) -> list[int]:
    return [port for first in (ports.free_ports(3) for _ in range(times)) for port in range(first, first + 3)]


def test_processes_that_ask_at_once_are_given_different_ports() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        given = [port for answer in pool.map(_ask, [20, 20]) for port in answer]
    assert len(given) == len(set(given)) == 120
    assert min(given) >= ports.FIRST_PORT and max(given) < ports.END_PORT


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    first = ports.free_port()
    held = first + 2 if first + 2 < ports.END_PORT else ports.FIRST_PORT
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", held))
        taken.listen()
        row = ports.free_ports(3)
    assert held not in range(row, row + 3)
