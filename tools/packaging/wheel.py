#!/usr/bin/env python3
"""Packs a wheel: wheel.py VERSION STAGED PYTHON_PACKAGE OUTPUT_FOLDER PROJECT_URL. STAGED is a
folder as tools/install fills one. PROJECT_URL may be empty. Prints the wheel's path."""

import base64
import hashlib
import pathlib
import sys
import zipfile

# The newest symbols that the program and the library ask glibc for are 2.34's.
TAG = "py3-none-manylinux_2_34_x86_64"


DOCUMENTS = "share/doc/ddprun"
DESCRIPTION = pathlib.Path(__file__).parent / "description.md"


def contents(version, staged, package, url):
    """(name in the wheel, bytes, mode) of each file but RECORD."""
    documents = staged / DOCUMENTS
    info = f"ddprun-{version}.dist-info"
    for path in sorted([*package.rglob("*.py"), package / "py.typed"]):
        yield f"ddprun/{path.relative_to(package)}", path.read_bytes(), 0o644
    yield "ddprun/lib/libddp.so", (staged / "lib/libddp.so").read_bytes(), 0o755
    yield f"ddprun-{version}.data/scripts/ddprun", (staged / "bin/ddprun").read_bytes(), 0o755
    for name in ("LICENSE", "THIRD_PARTY_LICENSES"):
        yield f"{info}/licenses/{name}", (documents / name).read_bytes(), 0o644
    for path in sorted(path for path in documents.rglob("*") if path.is_file()):
        name = f"ddprun-{version}.data/data/{DOCUMENTS}/{path.relative_to(documents)}"
        if path.name != "THIRD_PARTY_LICENSES":
            yield name, path.read_bytes(), 0o644
    metadata = "\n".join(
        [
            "Metadata-Version: 2.1",
            "Name: ddprun",
            f"Version: {version}",
            "Summary: Starts and watches distributed training; a backend for torch.distributed",
            "License: Apache-2.0" if b"Apache" in (documents / "LICENSE").read_bytes()
            else "License: see LICENSE",
            *([f"Project-URL: Source, {url}"] if url else []),
            "Requires-Python: >=3.10",
            "Description-Content-Type: text/markdown",
            "",
            DESCRIPTION.read_text(encoding="utf-8"),
        ]
    )
    yield f"{info}/METADATA", metadata.encode(), 0o644
    wheel = f"Wheel-Version: 1.0\nGenerator: ddprun\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    yield f"{info}/WHEEL", wheel.encode(), 0o644
    # init_process_group("ddp") needs no import: PyTorch calls these when it is imported.
    entries = "[torch.backends]\nddprun = ddprun.entry:register_by_torch\n"
    yield f"{info}/entry_points.txt", entries.encode(), 0o644


def main(version, staged, package, folder, url):
    path = pathlib.Path(folder) / f"ddprun-{version}-{TAG}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:

        def add(name, data, mode):
            # A date of its own would make each build another file.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)

        files = contents(version, pathlib.Path(staged), pathlib.Path(package), url)
        for name, data, mode in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            add(name, data, mode)
        name = f"ddprun-{version}.dist-info/RECORD"
        add(name, "\n".join([*record, f"{name},,", ""]).encode(), 0o644)
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
