"""Search for pages that are opened from the disk, where browsers let no script fetch files or start workers by path."""

import json
from pathlib import Path

#: Zensical's script loads this file in place of `search.json` if the address of a page begins with `file:`.
OFFLINE_INDEX = "search.js"

_SCRIPT = """var __index = {index};
{{
  const address = URL.createObjectURL(new Blob([{worker}], {{ type: "text/javascript" }}));
  window.Worker = class extends window.Worker {{
    constructor() {{
      super(address);
    }}
  }};
}}
"""


def add_offline_search(site: Path) -> None:
    """Writes the script that gives search its index and its worker without a server.

    Args:
        site: The built site.
    """
    index = (site / "search.json").read_text(encoding="utf-8")
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    # U+2028 and U+2029 in JSON are line ends for older browsers' JavaScript, so everything is ASCII.
    script = _SCRIPT.format(index=json.dumps(json.loads(index)), worker=json.dumps(worker.read_text(encoding="utf-8")))
    (site / OFFLINE_INDEX).write_text(script, encoding="ascii")
