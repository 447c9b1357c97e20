"""What mkdocs calls when it builds the site: the pages of `nav`, those that are made (the library's
headers by Doxygen, the Python functions), and links that lead out of docs/."""

import ast
import pathlib
import posixpath
import re
import subprocess
import tempfile

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HEADERS = "worker_runtime/include/ddp"
CPP_FOLDER = "library/cpp-api"  # Doxygen's pages in the site
SOURCES = "source/"  # copies in the site of files outside docs/
WORKER = "iframe-worker.js"
_LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
_doxygen = tempfile.TemporaryDirectory(prefix="ddprun-docs.")


def project_url():
    return (REPOSITORY / "PROJECT_URL").read_text(encoding="utf-8").strip().rstrip("/")


# ---- nav ----


def on_config(config):
    config.nav = _expanded(config.nav, pathlib.Path(config.docs_dir), set(_names(config.nav)))
    if project_url():
        config.nav.append({"Source": project_url()})
    return config


def _names(nav):
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from _names(each)


def _expanded(nav, docs, named):
    """`nav` with each pattern replaced by the pages that it finds and that have no entry."""
    if isinstance(nav, dict):
        return {title: _expanded(below, docs, named) for title, below in nav.items()}
    if isinstance(nav, str):
        return nav
    pages = []
    for each in nav:
        if isinstance(each, str) and "*" in each:
            found = [path.relative_to(docs).as_posix() for path in sorted(docs.glob(each))]
            pages += [page for page in found if page not in named]
        else:
            pages.append(_expanded(each, docs, named))
    return pages


# ---- pages that are made ----


def on_files(files, config):
    for page, text in (("python-api", _python_api()), ("cpp-api", _cpp_api())):
        files.append(File.generated(config, f"library/{page}.md", content=text))
    worker = REPOSITORY / "tools/site" / WORKER
    files.append(File.generated(config, WORKER, abs_src_path=str(worker)))
    made = _run_doxygen()
    for path in sorted(path for path in made.rglob("*") if path.is_file()):
        place = f"{CPP_FOLDER}/{path.relative_to(made).as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(path)))
    if not project_url():
        _add_sources(files, config)
    return files


def _run_doxygen():
    """The folder of its pages. Its warnings are errors (Doxyfile)."""
    settings = (REPOSITORY / "tools/site/Doxyfile").read_text(encoding="utf-8")
    settings += f"\nOUTPUT_DIRECTORY = {_doxygen.name}\n"
    done = subprocess.run(("doxygen", "-"), input=settings, cwd=REPOSITORY, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise PluginError(f"doxygen over {HEADERS}: exit code {done.returncode}\n{done.stderr}")
    return pathlib.Path(_doxygen.name) / "html"


def _cpp_api():
    rows = []
    for path in sorted((REPOSITORY / HEADERS).glob("*.h")):
        # Doxygen's name of the page of a file.
        page = path.name.replace("_", "__").replace(".", "_8") + ".html"
        text = re.sub(r"\n(//| \*)", "", path.read_text(encoding="utf-8"))
        first = re.match(r"/[/*] (.*?[.:])(?=\s)", text)
        if not first:
            raise PluginError(f"{HEADERS}/{path.name}: no first sentence for the list of headers; "
                              "begin the file with a comment that says what is in it")
        rows.append(f"| [`ddp/{path.name}`](cpp-api/{page}) | {first[1].rstrip(':.')} |")
    return "\n".join([
        "# C++ and C reference", "",
        "Read this if you look for a class or a function of the library.", "",
        "```cpp", "#include <ddp/ddp.h>", "```", "",
        "All [classes](cpp-api/annotated.html), all [files](cpp-api/files.html).", "",
        "| header | what is in it |", "|---|---|", *rows, ""])


def _python_api():
    package = REPOSITORY / "python/ddprun"
    functions = {}
    for each in ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(each, ast.ImportFrom):
            module = package / (each.module.removeprefix("ddprun.") + ".py")
            public = {alias.name for alias in each.names}
            functions |= {
                part.name: part for part in ast.parse(module.read_text(encoding="utf-8")).body
                if isinstance(part, ast.FunctionDef) and part.name in public}
    lines = ["# Python reference", "", "Read this if you call a function of the Python package.",
             "", "```python", "import ddprun", "```", ""]
    for name, function in sorted(functions.items()):
        call = f"ddprun.{name}({ast.unparse(function.args)}) -> {ast.unparse(function.returns)}"
        lines += [f"## {name}", "", "```python", call, "```", "", ast.get_docstring(function), ""]
    return "\n".join(lines)


# ---- links out of docs/ ----


def _in_repository(page):
    """The path in the repository of a page or file of the site."""
    return page.removeprefix(SOURCES) if page.startswith(SOURCES) else f"docs/{page}"


def _targets(page, text):
    """The paths in the repository, outside docs/, that a page links to."""
    folder = posixpath.dirname(_in_repository(page))
    for link in _LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if not target.startswith("docs/") and (REPOSITORY / target).is_file():
            yield target


def _add_sources(files, config):
    """Copies into the site what its pages link to outside docs/, and what these link to."""
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for target in _targets(page.src_uri, page.content_string):
            if files.get_file_from_path(SOURCES + target) is None:
                path = str(REPOSITORY / target)
                copy = File.generated(config, SOURCES + target, abs_src_path=path)
                files.append(copy)
                if copy.is_documentation_page():
                    waiting.append(copy)


def on_page_markdown(markdown, page, **_):
    """Links to files outside docs/ lead to their copies, or to the project's page. Items of a list
    in a list are indented as mkdocs wants them."""
    here = page.file.src_uri
    folder = posixpath.dirname(_in_repository(here))

    def mapped(link):
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if not (REPOSITORY / target).is_file():
            return link[0]
        if target.startswith("docs/"):
            place = target.removeprefix("docs/")
        elif project_url():
            return f"{link[1]}{project_url()}/blob/main/{target}{link[3]}"
        else:
            place = SOURCES + target
        return link[1] + posixpath.relpath(place, posixpath.dirname(here) or ".") + link[3]

    pieces = re.split(r"(^```.*?^```)", markdown, flags=re.S | re.M)  # code stays as it is
    pieces[::2] = [re.sub(r"^  - ", "    - ", _LINK.sub(mapped, each), flags=re.M)
                   for each in pieces[::2]]
    return "".join(pieces)


def on_shutdown():
    _doxygen.cleanup()
