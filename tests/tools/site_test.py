#!/usr/bin/env python3
"""The headers as Doxygen reads them, dead links in a site, and the folders that a build refuses."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SITE, DOCS = os.path.abspath("tools/site"), os.path.abspath("tools/docs")
HEADER = """\
// What it does. See <x>.
#ifndef A
/* ---- A heading ---- */
// Waits for `a<b>` and c<d>, @e; ::f is libtorch's.
//
//   code(a<b>);
//     more
// After it.
int Wait(int a,   // seconds
         int b);  // ranks
"http://x"
#endif  // A
/* In C:
 *
 *   x = a<b>;
 * - an item
 *   of two lines */
"""
FILTERED = """\
/// @file a.h What it does. See \\<x\\>.
#ifndef A
/* ---- A heading ---- */
/// Waits for `a<b>` and c\\<d\\>, \\@e; \\::f is libtorch's.
///
///      code(a<b>);
///        more
/// After it.
int Wait(int a,   ///< seconds
         int b);  ///< ranks
"http://x"
#endif  // A
/** In C:
 *
 *      x = a<b>;
 * - an item
 *   of two lines */
"""


def run(program, *arguments):
    words = (sys.executable, f"{SITE}/{program}", *arguments)
    return subprocess.run(words, capture_output=True, text=True, check=False)


class FilterTest(unittest.TestCase):
    def test_comments_get_doxygens_marks_and_lines_keep_their_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder, "a.h")
            header.write_text(HEADER, encoding="utf-8")
            self.assertEqual(run("doxygen_filter.py", str(header)).stdout, FILTERED)


class PagesTest(unittest.TestCase):
    def check(self, text, **others):
        """The lines about a site of the page sub/a.html and others, without their places."""
        with tempfile.TemporaryDirectory() as folder:
            pages = {"sub/a.html": text, "b.html": '<h2 id="there">', "style.css": ""} | others
            for name, each in pages.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(each, encoding="utf-8")
            done = run("check_pages.py", folder)
            self.assertEqual(done.returncode, 1 if done.stdout else 0, done.stderr)
            return [line.split(": ", 1)[1] for line in done.stdout.splitlines()]

    def test_good_links_are_no_breach(self):
        self.assertEqual(self.check(
            '<a href="../b.html#there"><a href="#"><a href="#x" id="x"><a href="https://x.org/y">'
            '<a href="../b.html?q=1"><link rel="stylesheet" href="../style.css">'
            '<link rel="canonical" href="https://x.org/"><a href="mailto:a@b">'
            '<img src="data:image/png;base64,">'), [])

    def test_a_link_to_no_file_and_one_to_no_heading_are_found(self):
        links = '<a href="b.html"><a href="../b.html#gone"><a href="#gone"><img src="x.png">'
        self.assertEqual(self.check(links), [
            "b.html: there is no such file in the site", "../b.html#gone: there is no such heading",
            "#gone: there is no such heading", "x.png: there is no such file in the site"])

    def test_a_link_out_of_the_site_is_found(self):
        why = "there is no such file in the site"
        self.assertEqual(self.check('<a href="../../../etc/passwd"><a href="/b.html">'), [
            f"../../../etc/passwd: {why}", f"/b.html: {why}"])

    def test_what_a_page_loads_from_elsewhere_is_found(self):
        why = "it would be loaded from elsewhere"
        loads = '<script src="https://x.org/y.js"></script><img src="//x.org/y.png">'
        style = {"style.css": "a { src: url('https://x.org/font') }"}
        self.assertEqual(self.check(loads), [
            f"https://x.org/y.js: {why}", f"//x.org/y.png: {why}"])
        self.assertEqual(self.check("", **style), [f"url('https://x.org/font: {why}"])

    def test_a_folder_without_a_page_is_no_site(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("check_pages.py", folder)
            self.assertEqual((done.returncode, "there is no page" in done.stdout), (1, True))


class OutputTest(unittest.TestCase):
    def build(self, *files, output="."):
        """How `tools/docs build` ends in a folder with these files, without an mkdocs."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            for name in files:
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            done = subprocess.run(("bash", DOCS, "build", f"--output={output}"), cwd=folder,
                                  env=os.environ | {"XDG_CACHE_HOME": cache}, capture_output=True,
                                  text=True, check=False)
            self.assertTrue(all(pathlib.Path(folder, name).exists() for name in files))
            return done.returncode, done.stderr

    def test_a_folder_with_other_files_is_refused(self):
        for files in (("mine.txt",), (".hidden",), ("search/search_index.json", "index.html")):
            code, error = self.build(*files)
            self.assertEqual((code, error.count("\n")), (2, 1), error)
            self.assertRegex(error, r"--output '/.*/\.': expected a new or empty folder, or a site")
        self.assertEqual(self.build("mine.txt", output="mine.txt")[0], 2)

    def test_a_new_folder_and_an_empty_one_and_a_former_site_are_taken(self):
        site = ("index.html", "library/cpp-api/annotated.html")
        for code, error in (self.build(), self.build("mine.txt", output="new"), self.build(*site)):
            self.assertEqual(code, 1, error)
            self.assertIn("no mkdocs in", error)


if __name__ == "__main__":
    unittest.main()
