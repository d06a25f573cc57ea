"""Install Chromium for the tests of the page if it is missing. If that is impossible, the tests are skipped.

With CI=true a missing browser is a failure instead. Needs only Python.
"""

import os
import shutil
import sys

import packages

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_INSTALL = """\
    Debian           sudo apt-get install chromium-headless-shell fonts-inter
    elsewhere        Chrome or Chromium, as one of these on the PATH: """ + ", ".join(NAMES)


def is_there() -> bool:
    return any(map(shutil.which, NAMES))


def ensure() -> None:
    if is_there():
        return
    # The page prefers the font Inter, and falls back to another one.
    for name in ("chromium-headless-shell", "chromium"):  # the first, which has no windows, costs the tests less
        said = packages.install(name, "fonts-inter", "fonts-dejavu-core")
        if is_there():
            return
    print(f"{said or ''}\nChromium is missing, and only you can install it here:\n{HOW_TO_INSTALL}", file=sys.stderr)
    if os.environ.get("CI"):
        sys.exit(1)
    print("The tests of the page will be skipped.", file=sys.stderr)


if __name__ == "__main__":
    ensure()
