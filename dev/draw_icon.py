"""Draws the icon of the marketplace and its plugins from `docs/logo.svg`, in headless Chromium.

python dev/draw_icon.py    writes .claude-plugin/icon.png; `make plugins` copies it to each plugin
"""

import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
LOGO = ROOT / "docs" / "logo.svg"
ICON = ROOT / ".claude-plugin" / "icon.png"

#: Pixels of each side: the plugin directory takes 512 to 2,048.
SIDE = 1024

#: On a plate, because listings have light and dark backgrounds.
PAGE = """<!doctype html><style>
html, body {{ margin: 0; background: transparent }}
div {{ width: {side}px; height: {side}px; border-radius: 22%; background: #eaf1fd;
      display: grid; place-items: center }}
svg {{ width: 76%; height: 76% }}
</style><div>{logo}</div>"""


def main() -> int:
    """Writes the icon, and returns the exit status."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("draw_icon.py needs chromium on PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        page, picture = Path(directory, "icon.html"), Path(directory, "icon.png")
        page.write_text(PAGE.format(side=SIDE, logo=LOGO.read_text()))
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--default-background-color=00000000"]
        size = [f"--window-size={SIDE},{SIDE}", "--force-device-scale-factor=1", f"--screenshot={picture}"]
        subprocess.run([chromium, *options, *size, page.as_uri()], check=True, timeout=60, capture_output=True)
        compact = BytesIO()
        with Image.open(picture) as image:
            image.convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE).save(compact, "png", optimize=True)
    ICON.write_bytes(compact.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
