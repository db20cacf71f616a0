"""What a tool returned, as code in the kernel gets it: text, with pictures shown in the cell and files saved.

https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result
"""

import base64
import mimetypes
import sys
import uuid
from pathlib import Path
from typing import Any, cast

#: Formats that a cell can show as pictures.
SHOWN_IMAGES = ("image/png", "image/jpeg")

#: Where content that is neither text nor a picture is saved, in the kernel's working directory.
FILES_DIR = Path("toolfiles")


def render(content: list[dict[str, Any]]) -> str | None:
    """Returns the text of a tool result, or None if there is none.

    Pictures are shown in the cell if there is one. Everything else that is not text is saved to a file, which the
    text names.
    """
    texts = [text for block in content if (text := _render_block(block)) is not None]
    return "\n".join(texts) if texts else None


def _render_block(block: dict[str, Any]) -> str | None:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "image" | "audio":
            return _show_or_save(str(block["data"]), str(block.get("mimeType", "")))
        case "resource":
            resource = cast(dict[str, Any], block["resource"])
            if "text" in resource:
                return str(resource["text"])
            return _show_or_save(str(resource["blob"]), str(resource.get("mimeType", "")))
        case "resource_link":
            return f"[resource {block.get('name', '')}: {block['uri']}]"
        case _:
            return f"[{block}]"


def _show_or_save(data: str, mime_type: str) -> str | None:
    raw = base64.b64decode(data)
    if mime_type in SHOWN_IMAGES and "IPython" in sys.modules:
        from IPython import display
        from IPython.core.getipython import get_ipython

        if get_ipython() is not None:
            module: Any = display  # not annotated
            module.display(module.Image(raw, format=mime_type.removeprefix("image/")))
            return None
    FILES_DIR.mkdir(exist_ok=True)
    path = FILES_DIR / f"{uuid.uuid4().hex}{mimetypes.guess_extension(mime_type) or '.bin'}"
    path.write_bytes(raw)
    return f"[{mime_type or 'data'} saved to {path}]"
