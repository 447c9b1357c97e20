#!/usr/bin/env python3
"""Prints an SBOM (SPDX 2.3) of a release: sbom.py VERSION SECONDS PROJECT_URL. Reads a line "name
version" for each package of the distribution with code in the programs. SECONDS since 1970 are the
release's time. PROJECT_URL may be empty."""

import datetime
import hashlib
import json
import pathlib
import re
import sys
import urllib.parse


def _package(name, version, **more):
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        **more,
    }


def _purl(distribution, name, version):
    quoted = [urllib.parse.quote(each, safe="") for each in (name, version)]
    return f"pkg:deb/{distribution}/{quoted[0]}@{quoted[1]}?arch=amd64"


def document(version, seconds, url, distribution, components):
    """`components` are (name, version) of the distribution's packages."""
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    packages = [_package("ddprun", version, downloadLocation=url or "NOASSERTION",
                         licenseDeclared="Apache-2.0", primaryPackagePurpose="APPLICATION")]
    packages += [
        _package(name, its_version, externalRefs=[{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": _purl(distribution, name, its_version),
        }])
        for name, its_version in components
    ]
    digest = hashlib.sha256(json.dumps(packages).encode()).hexdigest()[:32]
    ours = packages[0]["SPDXID"]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"ddprun-{version}",
        "documentNamespace": f"{url or 'https://spdx.org'}/spdxdocs/ddprun-{version}-{digest}",
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: tools/release"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
             "relatedSpdxElement": ours},
            *({"spdxElementId": ours, "relationshipType": "CONTAINS",
               "relatedSpdxElement": each["SPDXID"]} for each in packages[1:]),
        ],
    }


def main(version, seconds, url):
    system = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    distribution = re.search(r'^ID="?([^"\n]*)', system, re.M)[1]
    components = [tuple(line.split()) for line in sys.stdin]
    made = document(version, int(seconds), url, distribution, components)
    print(json.dumps(made, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
