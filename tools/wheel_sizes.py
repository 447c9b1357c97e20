#!/usr/bin/env python3
"""What pip would download, from the report of a dry run.

usage: wheel_sizes.py REPORT.json LIMIT_MB

Prints one line, "N MB in N files", or why not: more than the limit, or a size that nobody tells. Exit status 0
when it is at most the limit, 3 when it is more, 1 otherwise. Downloads nothing: files have a size, and of an
address only the headers are asked for.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

TIMEOUT_S = 30


def size_of(url):
    """Bytes behind the address. Raises OSError or ValueError."""
    parts = urllib.parse.urlparse(url)
    if parts.scheme == "file":
        return os.stat(urllib.request.url2pathname(parts.path)).st_size
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        length = answer.headers.get("Content-Length")
    if length is None:
        raise ValueError("the answer names no length")
    return int(length)


def main(arguments):
    if len(arguments) != 2:
        print("usage: wheel_sizes.py REPORT.json LIMIT_MB")
        return 1
    path, limit_mb = arguments[0], int(arguments[1])
    try:
        with open(path, encoding="utf-8") as file:
            wheels = json.load(file)["install"]
        urls = [wheel["download_info"]["url"] for wheel in wheels]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"cannot read pip's report {path}: {error!r}")
        return 1
    total = 0
    for url in urls:
        name = urllib.parse.unquote(url.rsplit("/", 1)[-1])
        try:
            total += size_of(url)
        except (OSError, ValueError) as error:
            print(f"cannot learn the size of {name}: {error}")
            return 1
    megabytes = (total + 999_999) // 1_000_000
    files = f"{megabytes} MB in {len(urls)} files"
    if megabytes > limit_mb:
        print(f"{files}, more than {limit_mb} MB")
        return 3
    print(files)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
