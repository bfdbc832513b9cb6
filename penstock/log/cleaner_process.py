"""The compaction process: `python -m penstock.log.cleaner_process SPEC RESULT`. Low priority, no network, no broker."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from penstock.log.compaction import CompactionSpec, CorruptSource, compact


def main(arguments: list[str]) -> int:
    """0 and a result file, or 1 and the reason on stderr."""
    spec_path, result_path = map(Path, arguments)
    os.nice(19)
    spec = CompactionSpec(**json.loads(spec_path.read_text(encoding="utf-8")))
    try:
        result = compact(spec)
    except (CorruptSource, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    content = json.dumps(
        {
            "outputs": [list(output) for output in result.outputs],
            "next_dirty_offset": result.next_dirty_offset,
            "records_read": result.records_read,
            "records_kept": result.records_kept,
        }
    )
    result_path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
