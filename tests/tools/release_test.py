#!/usr/bin/env python3
"""tools/release in a small repository of real git: what it refuses, sets and packs. The build
and the packages are the test's."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path("tools").resolve()
CHANGELOG = """\
# Changelog

```console
$ ddprun --version
ddprun 0.1.0 (protocol 7)
```

## [Unreleased]

### Added

- **Launcher**: [what differs](docs/a.md), and [a form](https://x.org/).
"""
PACKAGING = ("stage.sh", "version.py", "sbom.py")
FILES = {
    "CHANGELOG.md": CHANGELOG,
    "PROJECT_URL": "",
    "README.md": "# ddprun\n",
    ".gitignore": "/dist/\n/ignored\n__pycache__/\n",
    "docs/a.md": "pip install dist/ddprun-0.1.0-py3.whl dist/ddprun_0.1.0_amd64.deb\n"
                 "ddprun 0.1.0 (protocol 7)\n"
                 "since ddprun 0.1.0, and 10.1.0.7\n",
    "docs/reference/versions.md": "| version | protocol |\n|---|---|\n| 0.1.0 | 1 |\n",
    "python/ddprun/__init__.py": '__version__ = "0.1.0"\n',
    "rendezvous/base/version.h": 'inline constexpr char kVersion[] = "0.1.0";\n',
    "rendezvous/base/this_release.cc": "return {.protocol = 7, .version = kVersion};\n",
    "tools/build": "#!/bin/bash\nmkdir -p dist\n",
    # Packs the names of the checkout's files and its version.
    "tools/package": "#!/bin/bash\ncd \"$(dirname \"$0\")/..\"\n{ cat rendezvous/base/version.h\n"
                     "find . -path ./.git -prune -o -type f -print | sort; }"
                     " | tee dist/ddprun.whl dist/ddprun.deb >dist/ddprun.tar.gz\n",
}


@unittest.skipIf(shutil.which("git") is None, "no git here")
class ReleaseTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name, "repository")
        self.environment = os.environ | {
            "HOME": scratch.name, "XDG_CACHE_HOME": f"{scratch.name}/cache",
            "GIT_CONFIG_NOSYSTEM": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@x.org",
            "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@x.org"}
        for name, text in FILES.items():
            self.write(name, text)
        for name in ("release", "lib.sh", *(f"packaging/{each}" for each in PACKAGING)):
            target = self.root / "tools" / name
            target.parent.mkdir(exist_ok=True)
            shutil.copy(TOOLS / name, target)
        for name in ("build", "package"):
            (self.root / "tools" / name).chmod(0o755)
        self.git("init", "--quiet")
        self.commit()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def git(self, *words):
        return subprocess.run(("git", *words), cwd=self.root, env=self.environment, check=True,
                              capture_output=True, text=True).stdout

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")

    def release(self, *arguments):
        return subprocess.run(("tools/release", *arguments), cwd=self.root, env=self.environment,
                              capture_output=True, text=True, check=False)

    def refuses(self, words, *arguments):
        before = self.git("rev-parse", "HEAD"), self.git("status", "--porcelain")
        done = self.release(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual((self.git("rev-parse", "HEAD"), self.git("status", "--porcelain")), before)
        self.assertFalse((self.root / "dist").exists())

    def test_a_wrong_version_is_refused(self):
        for version in ("v1.0.0", "1.0", "1.2.3.4", "01.2.3", "1.2.3-rc1", "newest"):
            self.refuses(f"VERSION '{version}': expected X.Y.Z", version)
        self.refuses("VERSION '0.0.9': expected 0.1.0 or newer", "0.0.9")
        self.refuses("no VERSION")
        self.refuses("more than one VERSION: '1.0.0' and '2.0.0'", "1.0.0", "2.0.0")
        self.refuses("unknown option '--dry'", "--dry", "1.0.0")

    def test_a_version_that_is_not_newer_is_refused(self):
        sections = "\n## [0.10.0] - 2026-01-02\n\n- x\n\n## [0.9.0] - 2026-01-01\n"
        self.write("CHANGELOG.md", CHANGELOG + sections)
        self.commit()
        for version in ("0.10.0", "0.9.1"):
            self.refuses(f"VERSION '{version}': expected one newer than 0.10.0", version)

    def test_a_tree_that_is_not_clean_is_refused(self):
        self.write("other", "")
        self.refuses("the tree is not clean: commit or remove other", "1.0.0")

    def test_a_changelog_without_an_entry_is_refused(self):
        self.write("CHANGELOG.md", "## [Unreleased]\n\n### Added\n\n## [0.0.1] - 2026-01-01\n- x\n")
        self.commit()
        self.refuses("the section '## [Unreleased]' has no entry", "1.0.0")
        self.write("CHANGELOG.md", "# Changelog\n\n- x\n")
        self.commit()
        self.refuses("no section '## [Unreleased]'", "1.0.0")

    def test_a_place_without_the_version_is_refused(self):
        self.write("python/ddprun/__init__.py", '__version__ = "0.2.0"\n')
        self.commit()
        self.refuses("python/ddprun/__init__.py: no version 0.1.0 found", "1.0.0")

    def test_a_dry_run_prints_the_changes_and_makes_none(self):
        before = self.git("rev-parse", "HEAD")
        done = self.release("--dry-run", "1.0.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('rendezvous/base/version.h\n  -inline constexpr char kVersion[] = "0.1.0";\n'
                      '  +inline constexpr char kVersion[] = "1.0.0";\n', done.stdout)
        self.assertIn("  -## [Unreleased]\n  +## [1.0.0] - ", done.stdout)
        self.assertEqual(self.git("rev-parse", "HEAD") + self.git("status", "--porcelain"), before)
        self.assertFalse((self.root / "dist").exists())

    def test_a_release_sets_the_version_everywhere_and_packs_its_commit_alone(self):
        self.write("ignored", "")
        done = self.release("1.0.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.git("log", "-1", "--format=%s"), "release: ddprun 1.0.0\n")
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertIn("git tag -a v1.0.0", done.stderr)
        self.assertEqual(self.read("docs/a.md"), (
            "pip install dist/ddprun-1.0.0-py3.whl dist/ddprun_1.0.0_amd64.deb\n"
            "ddprun 1.0.0 (protocol 7)\nsince ddprun 0.1.0, and 10.1.0.7\n"))
        self.assertEqual(self.read("docs/reference/versions.md"),
                         "| version | protocol |\n|---|---|\n| 1.0.0 | 7 |\n| 0.1.0 | 1 |\n")
        self.assertEqual(self.read("python/ddprun/__init__.py"), '__version__ = "1.0.0"\n')
        self.assertRegex(self.read("CHANGELOG.md"),
                         r"ddprun 1\.0\.0 \(protocol 7\)\n```\n\n"
                         r"## \[1\.0\.0\] - \d{4}-\d\d-\d\d\n")
        packed = self.read("dist/release/ddprun.whl")
        self.assertIn('kVersion[] = "1.0.0"', packed)
        self.assertNotIn("ignored", packed.replace(".gitignore", ""))
        self.assertEqual(self.read("dist/release/NOTES.md"), (
            "# ddprun 1.0.0\n\n### Added\n\n"
            "- **Launcher**: what differs, and [a form](https://x.org/).\n"))
        words = ("sha256sum", "--check", "--strict", "SHA256SUMS")
        listed = subprocess.run(words, cwd=self.root / "dist/release", check=True,
                                capture_output=True, text=True).stdout
        self.assertEqual(listed, "".join(f"{name}: OK\n" for name in (
            "NOTES.md", "ddprun-1.0.0.spdx.json", "ddprun.deb", "ddprun.tar.gz", "ddprun.whl")))

    def test_the_sbom_names_the_libraries_inside(self):
        self.write("PROJECT_URL", "https://x.org/ddprun/\n")
        self.commit()
        self.assertEqual(self.release("0.1.0").returncode, 0)
        sbom = json.loads(self.read("dist/release/ddprun-0.1.0.spdx.json"))
        packages = {each["name"]: each for each in sbom["packages"]}
        self.assertEqual(sbom["spdxVersion"], "SPDX-2.3")
        self.assertEqual(packages["ddprun"]["downloadLocation"], "https://x.org/ddprun")
        contained = [each for each in sbom["relationships"]
                     if each["relationshipType"] == "CONTAINS"]
        self.assertEqual(len(contained), len(packages) - 1)
        for name in ("libgrpc++-dev", "libabsl-dev"):
            version = subprocess.run(("dpkg-query", "-W", "-f", "${Version}", name), check=True,
                                     capture_output=True, text=True).stdout
            self.assertEqual(packages[name]["versionInfo"], version)
        self.assertTrue([name for name in packages if name.startswith("libstdc++-")])
        self.assertEqual(len({each["SPDXID"] for each in packages.values()}), len(packages))
        self.assertIn("[what differs](https://x.org/ddprun/blob/v0.1.0/docs/a.md)",
                      self.read("dist/release/NOTES.md"))

    def test_a_second_run_packs_the_same_commit_into_the_same_files(self):
        self.assertEqual(self.release("1.0.0").returncode, 0)
        commit, sums = self.git("rev-parse", "HEAD"), self.read("dist/release/SHA256SUMS")
        done = self.release("1.0.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.git("rev-parse", "HEAD"), commit)
        self.assertEqual(self.read("dist/release/SHA256SUMS"), sums)


if __name__ == "__main__":
    unittest.main()
