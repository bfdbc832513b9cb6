"""The compaction process: `python -m penstock.log.cleaner_process SPEC RESULT`. Low priority, no network, no broker."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Final

from penstock.log.compaction import CompactionSpec, CorruptSource, compact
from penstock.log.files import write_file

SOURCE_IS_CORRUPT: Final = 3
DISK_REFUSED: Final = 4


def main(arguments: list[str]) -> int:
    """0 and a result file, or the reason on stderr and a code that says whether another try may help."""
    spec_path, result_path = map(Path, arguments)
    os.nice(19)
    threading.Thread(target=_end_with_the_broker, daemon=True).start()
    spec = CompactionSpec(**json.loads(spec_path.read_text(encoding="utf-8")))
    try:
        result = compact(spec)
    except CorruptSource as error:
        print(error, file=sys.stderr)
        return SOURCE_IS_CORRUPT
    except OSError as error:
        print(error, file=sys.stderr)
        return DISK_REFUSED
    content = json.dumps(
        {
            "outputs": [list(output) for output in result.outputs],
            "next_dirty_offset": result.next_dirty_offset,
            "records_read": result.records_read,
            "records_kept": result.records_kept,
        }
    )
    try:
        write_file(result_path, content.encode(), durable=False)
    except OSError as error:
        print(error, file=sys.stderr)
        return DISK_REFUSED
    return 0


def _end_with_the_broker() -> None:
    """Nothing ever comes in; the end does when the broker is gone, however it went."""
    os.read(0, 1)
    os._exit(DISK_REFUSED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
