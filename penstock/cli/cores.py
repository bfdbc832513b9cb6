"""Several brokers of one machine from one settings file: what each of them makes of it, and whether it may start.

Partitions are the unit of scale: a machine's cores are used by as many brokers, each with own id, ports and folders.
`${core}` in the file stands for the broker's number, 0 to N - 1. Where a setting that must differ does not use it, ids
and ports count up from what is given, and a folder gets a neighbour `<folder>.core-<n>`; broker 0 has exactly what the
file says, so that a broker that stood alone becomes the first of several, and what is there stays where it is when N
grows. Without an id in the file they count up from the one that broker 0 has in its folders, else from 0.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from penstock.base.settings import Settings
from penstock.base.settings.table import BROKER_SETTINGS
from penstock.cli.options import MOST_CORES
from penstock.log.log_directory import stored_node_id
from penstock.operate.errors import ExitCode, UserError

PLACEHOLDER = "${core}"
_LISTS_OF_ADDRESSES = ("listeners", "advertised.listeners")
_IDS = ("node.id", "broker.id")
_ID_TO_BE_CHOSEN = "-1"
_EVERYWHERE = ("", "0.0.0.0", "::")
_FOLDERS = ("log.dirs", "log.dir", "metadata.log.dir")
_LISTENERS = ",".join(BROKER_SETTINGS["listeners"].default)
_FOLDER = BROKER_SETTINGS["log.dir"].default[0]


def settings_of_core(given: Mapping[str, str], core: int) -> dict[str, str]:
    """What broker number `core` reads in a file that says `given`."""
    settings = {name: value.replace(PLACEHOLDER, str(core)) for name, value in given.items()}
    settings.setdefault("listeners", _LISTENERS)
    if "log.dirs" not in given and "log.dir" not in given:
        settings["log.dirs"] = _FOLDER
    settings.setdefault("penstock.machine", socket.gethostname())
    if all(settings.get(name, _ID_TO_BE_CHOSEN).strip() == _ID_TO_BE_CHOSEN for name in _IDS):
        settings["node.id" if "node.id" in given else "broker.id"] = _unsaid_id(given, settings)
    if core == 0:
        return settings
    for name in _IDS:
        if name in settings and PLACEHOLDER not in given.get(name, ""):
            number = _number(name, settings[name])
            settings[name] = str(number + core if number >= 0 else number)
    step = core * _span_of_ports(settings["listeners"])
    for name in _LISTS_OF_ADDRESSES:
        if name in settings and PLACEHOLDER not in given.get(name, ""):
            settings[name] = ",".join(_later_port(name, entry, step) for entry in settings[name].split(","))
    metrics = "penstock.metrics.listener"
    if metrics in settings and PLACEHOLDER not in given[metrics]:
        settings[metrics] = _later_port(metrics, settings[metrics], core)
    for name in _FOLDERS:
        if name in settings and PLACEHOLDER not in given.get(name, ""):
            folders = settings[name].split(",")
            settings[name] = ",".join(f"{folder.strip().rstrip('/')}.core-{core}" for folder in folders)
    return settings


def check(given: Mapping[str, str], cores: int) -> None:
    """Refuses what cannot work: no ZooKeeper to meet at, or replicas of brokers that would not be started."""
    if cores > 1 and not given.get("zookeeper.connect", "").strip():
        first = settings_of_core(given, 0).get("log.dirs", "").split(",")[0]
        raise UserError(
            "several brokers need ZooKeeper to meet at; the embedded store serves one",
            "start one with `penstock zookeeper`, move what there is with `penstock store migrate --to zookeeper "
            f"--connect 127.0.0.1:2181 --set log.dirs={first}`, then name it with zookeeper.connect=127.0.0.1:2181",
            ExitCode.USAGE,
        )
    _insist_on_own_places(given, cores)
    for core in range(cores, MOST_CORES):
        for folder in replica_folders(given, core):
            replicas = _replicas_in(folder)
            if replicas:
                raise UserError(
                    f"broker {core} of this machine holds {replicas} replicas in {folder} and would not be started",
                    f"start with --cores {core + 1} or more; `penstock partition reassign` moves them to other brokers",
                    ExitCode.REFUSED,
                )


def _unsaid_id(given: Mapping[str, str], first: Mapping[str, str]) -> str:
    """Of broker 0, where the file leaves it open. One that the cluster has chosen has no neighbours that are free."""
    texts = first.get("log.dirs") or first.get("log.dir") or ""
    stored = stored_node_id(Path(text.strip().replace(PLACEHOLDER, "0")) for text in texts.split(",") if text.strip())
    if stored is None:
        return _ID_TO_BE_CHOSEN if any(name in given for name in _IDS) else "0"
    highest = given.get("reserved.broker.max.id", str(BROKER_SETTINGS["reserved.broker.max.id"].default))
    return str(stored) if stored <= _number("reserved.broker.max.id", highest) else _ID_TO_BE_CHOSEN


def _insist_on_own_places(given: Mapping[str, str], cores: int) -> None:
    """Each broker has to be one that can start, and none may stand in another's way."""
    folders: dict[str, int] = {}
    ids: dict[int, int] = {}
    addresses: dict[int, list[tuple[str, int]]] = {}

    def refuse(what: str, first: int, second: int) -> None:
        raise UserError(
            f"{what} would be taken twice, by broker {first} and by broker {second} of this machine",
            f"choose values that leave room for {cores} of them, or use {PLACEHOLDER} in all that must differ",
            ExitCode.USAGE,
        )

    for core in range(cores):
        texts = settings_of_core(given, core)
        settings = Settings(texts)
        if settings.node_id >= 0 and (other := ids.setdefault(settings.node_id, core)) != core:
            refuse(f"id {settings.node_id}", other, core)
        for folder in settings.log_dirs:
            if (other := folders.setdefault(folder.rstrip("/"), core)) != core:
                refuse(f"folder {folder}", other, core)
        own = [(listener.host, listener.port) for listener in settings.listeners]
        if metrics := texts.get("penstock.metrics.listener", ""):
            place, _, number = metrics.rpartition(":")
            own.append((place.rpartition("/")[2], _number("penstock.metrics.listener", number)))
        for host, port in own:
            for taken, other in addresses.get(port, ()):
                if port and (taken == host or taken in _EVERYWHERE or host in _EVERYWHERE):
                    refuse(f"port {port}", other, core)
            addresses.setdefault(port, []).append((host, core))


def replica_folders(given: Mapping[str, str], core: int) -> list[Path]:
    settings = settings_of_core(given, core)
    texts = settings.get("log.dirs") or settings.get("log.dir") or ""
    own = [Path(text.strip()) for text in texts.split(",") if text.strip()]
    # A file whose folders do not tell brokers apart leaves nothing behind that could be looked for.
    first = settings_of_core(given, 0) if core else {}
    shared = {Path(text.strip()) for text in (first.get("log.dirs") or first.get("log.dir") or "").split(",")}
    return [folder for folder in own if folder not in shared]


def _replicas_in(folder: Path) -> int:
    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return 0
    return sum(name.rpartition("-")[2].isdigit() and bool(name.rpartition("-")[0]) for name in names)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name}={text} is no number", f"or use {PLACEHOLDER} in it", ExitCode.USAGE) from None


def _later_port(name: str, entry: str, step: int) -> str:
    place, _, port = entry.strip().rpartition(":")
    number = _number(name, port)
    return f"{place}:{number + step if number else 0}"  # 0: the system chooses


def _span_of_ports(listeners: str) -> int:
    """How far apart the same listener of two neighbours must be, so that no two of them meet."""
    ports = [_number("listeners", entry.rpartition(":")[2]) for entry in listeners.split(",")]
    return max(ports) - min(ports) + 1
