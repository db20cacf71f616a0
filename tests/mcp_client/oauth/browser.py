"""A browser for `$BROWSER`: follows the redirects of a URL, to the end. Standard library only.

python -S browser.py URL [LOG]
"""

import sys
import urllib.request

url = sys.argv[1]
with urllib.request.urlopen(url, timeout=20) as page:
    page.read()
