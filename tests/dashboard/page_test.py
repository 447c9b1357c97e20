#!/usr/bin/env python3
"""The dashboard's page in a real browser, before a server that plays made-up jobs, or before a real one.

usage: page_test.py --page FILE [CASE...]          runs the cases, or all
       page_test.py --url URL                      what must hold before any server; read-only
       page_test.py (--page FILE --scenario NAME [--past SECONDS] | --url URL) --screenshot FILE
                    [--size WIDTHxHEIGHT] [--dark] [--whole]
       page_test.py --list

Prints "SKIPPED: why" and ends with 0 where there is no browser.
"""

import argparse
import json
import sys
import time
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
import browser
import mock_server
import scenarios
from visit import CELLS, CONTRAST, Failure, Visit, check_quiet, check_width, expect, expect_equal


def healthy(page):
    with Visit(page, "healthy") as visit:
        expect(visit.text("#sentence").startswith("running: round 1, 1 of 1 nodes, 4 ranks, step 4,0"), visit.text("#sentence"))
        expect_equal(visit.browser.evaluate(f"[...{CELLS}].map((cell) => cell.className)"), ["cell running"] * 4, "cells")
        expect_equal(visit.browser.evaluate("document.getElementById('verdict').className"), "good", "verdict")
        expect(visit.browser.evaluate("document.getElementById('problems').hidden && document.getElementById('fault').hidden"), "a problem is shown")
        before = visit.text("#figures")
        visit.browser.wait(f"document.getElementById('figures').innerText !== {json.dumps(before)}")
        visit.browser.wait("document.querySelector('#throughput path').getAttribute('d').includes('L')")
        expect("samples/s" in visit.text("#throughput") and "% of a step" in visit.text("#share"), "units of the axes")
        expect_equal(visit.count("table.slowest tbody tr"), 4, "rows of the slowest ranks")


def opened_late(page):
    # Ten seconds apart, and half a minute of silence before the round changed.
    history = [[age, 1 if age > 300 else 2, 500.0 if age > 300 else None, 0.5, 0.25] for age in range(595, 0, -10) if not 300 < age < 335]
    with Visit(page, "healthy", history=history) as visit:
        label = "document.querySelector('#throughput svg').getAttribute('aria-label')"
        visit.browser.wait(f"{label}.startsWith('throughput over the last 9 min 5')")
        expect_equal(visit.browser.evaluate("document.querySelectorAll('#throughput .mark').length"), 2, "changes of the round")
        drawn = visit.browser.evaluate("document.querySelector('#throughput path.line').getAttribute('d')")
        # The old line is one, and the new one another, as in between there is no samples/s.
        expect(drawn.count("M") <= 3, f"the line is broken: {drawn}")


def buckets(page):
    with Visit(page, "buckets") as visit:
        def rows():
            return visit.browser.evaluate("[...document.querySelectorAll('.timeline dt')].map((name) => name.innerText)")

        def parts(row):
            return visit.browser.evaluate(f"[...document.querySelectorAll('.timeline .bar')[{row}].children].map((part) => [part.className, part.style.width])")

        expect_equal(rows(), ["backward", "bucket 1", "bucket 2", "bucket 3", "bucket 4", "bucket 5", "ms"], "rows")
        expect_equal(parts(0), [["own", "75%"]], "backward")
        expect_equal(parts(1), [["before", "12.5%"], ["hidden", "10%"]], "a bucket that backward hides")
        expect_equal(parts(4), [["before", "65%"], ["hidden", "10%"], ["exposed", "7.5%"]], "one that it hides in part")
        expect_equal(parts(5), [["before", "82.5%"], ["exposed", "17.5%"]], "one behind it")
        expect_equal(visit.browser.evaluate("document.querySelectorAll('.timeline .bar')[4].getAttribute('aria-label')"),
                     "bucket 4: from 52.0 ms to 66.0 ms, 6.00 ms of it behind backward", "what is read out")
        expect_equal(visit.text(".timeline .title-row").split(), ["0", "40", "80"], "the axis")
        # All bars stand on one axis, and the hatch begins where backward ends.
        edges = visit.browser.evaluate("""(() => {
          const bars = [...document.querySelectorAll('.timeline .bar')];
          return [bars[0].children[0].getBoundingClientRect().right, bars[4].querySelector('.exposed').getBoundingClientRect().left];
        })()""")
        expect(abs(edges[0] - edges[1]) < 1, f"backward's end and the hatch: {edges}")
        visit.browser.click("#grid [data-rank='1']")
        visit.wait_text("#details h3", "Rank 1")
        expect_equal(rows()[1:4] + rows()[-2:], ["bucket 1–2", "bucket 3–4", "bucket 5–6", "bucket 19–20", "ms"], "bars of several buckets")
        visit.browser.click("#grid [data-rank='2']")
        visit.wait_text("#details h3", "Rank 2")
        expect("its buckets of gradients were reduced is not known" in visit.text("#details"), visit.text("#details"))
        expect_equal(visit.count(".timeline"), 0, "a time line of what is not known")


def hung(page):
    with Visit(page, "hung") as visit:
        expect(visit.text("#sentence").startswith("hung: no step for 4"), visit.text("#sentence"))
        expect(visit.text("#waiting").startswith("rank 13 on gpu-02"), visit.text("#waiting"))
        expect("none for 4" in " ".join(visit.text("#figures").split()), f"a speed of a job that stands: {visit.text('#figures')}")
        looks = visit.browser.evaluate(f"Object.fromEntries([...{CELLS}].map((cell) => [cell.dataset.rank, cell.className]))")
        expect_equal(looks, {str(rank): "cell late named" if rank == 13 else "cell waiting" for rank in range(16)}, "cells")
        colors = visit.browser.evaluate("['late', 'waiting'].map((look) => getComputedStyle(document.querySelector('#grid .' + look)).backgroundColor)")
        expect_equal(colors, ["rgb(201, 58, 23)", "rgb(213, 229, 241)"], "colours of late and waiting")
        signs = visit.browser.evaluate("['late', 'waiting'].map((look) => getComputedStyle(document.querySelector('#grid .' + look), '::after').maskImage)")
        expect(signs[0] != signs[1] and all("data:image/svg" in sign for sign in signs), f"signs: {signs}")
        # What most asks for attention is shown unasked; another by pointing at it.
        expect(visit.text("#details h3") == "Rank 13" and "15 ranks have come to operation 49,525" in visit.text("#details"), visit.text("#details"))
        visit.browser.mouse("mouseMoved", "#grid [data-rank='4']")
        visit.wait_text("#details h3", "Rank 4")
        expect("in operation 49,525 of world, for rank 13" in visit.text("#details"), visit.text("#details"))
        visit.browser.mouse("mouseMoved", "#sentence")
        visit.wait_text("#details h3", "Rank 13")
        visit.browser.click("#problems [data-choose='13']")
        expect_equal(visit.count("#grid [data-rank='13'][aria-selected='true']"), 1, "the chosen cell")
        # The judge's word is enough where the program tells of no group.
        visit.server.set(view=lambda t: scenarios.without_groups(scenarios.hung(t)))
        visit.browser.wait("document.querySelectorAll('#grid .running').length === 15 && document.querySelectorAll('#grid .late').length === 1")


def many_ranks(page):
    for scenario, ranks, size in (("many", 1024, "small"), ("most", 8192, "least")):
        with Visit(page, scenario, every_s=1) as visit:
            expect_equal(visit.count("#grid [data-rank]"), ranks, "cells")
            expect_equal(visit.browser.evaluate("document.getElementById('grid').className"), size, "size of the cells")
            for state, number in (("late", 1), ("straggler", 1), ("waiting", 159), ("checkpoint", 8), ("evaluation", 8)):
                expect_equal(visit.count(f"#grid .{state}"), number, f"cells {state}")
            expect("159 waiting in a collective" in " ".join(visit.text("#legend").split()), visit.text("#legend"))
            # A node that is silent since 12 s is grey, and says so; one that gave no answer has no cells.
            expect_equal(visit.count("#grid .node.stale [data-rank]"), 8, "grey cells")
            expect("gpu-18 · 12 s old" in visit.browser.evaluate("document.querySelector('#grid .stale').title"), "the age of a grey node")
            expect_equal(visit.text("#grid .silent"), "gpu-old: no answer", "silent node")
            check_width(visit.browser, 1280)


def states(page):
    with Visit(page, "failed") as visit:
        looks = visit.browser.evaluate(f"[...{CELLS}].map((cell) => cell.className)")
        expect_equal(looks, ["cell ended", "cell ended", "cell failed named", "cell ended"], "cells of a failed job")
        expect("Rank 2 on gpu-01: exit code 1" in visit.text("#fault") and "ValueError: batch size 0" in visit.text("#fault pre"), visit.text("#fault"))
        visit.server.set(is_cut=True)
        visit.browser.wait("document.getElementById('connection').className === 'over'")
        visit.browser.errors.clear()  # The browser's own words about the connection.
    with Visit(page, "straggling") as visit:
        expect_equal(visit.browser.evaluate("document.querySelector('#grid .straggler').dataset.rank"), "5", "the straggler")
        expect_equal(visit.text("table.slowest tbody tr td"), "rank 5", "the slowest rank")
        expect("+53 %" in visit.text("table.slowest tbody tr"), visit.text("table.slowest tbody tr"))
        expect_equal(visit.count("#problems li.warning"), 2, "warnings")
        expect_equal(visit.count("#grid .checkpoint"), 1, "ranks in a checkpoint")


def restart(page):
    with Visit(page, "restarted") as visit:
        expect_equal(visit.count(".rounds li"), 3, "rounds")
        newest = visit.text(".rounds li")
        for words in ("Round 3", "after: rank 6 on gpu-02: killed by signal 9 (SIGKILL)", "23 s: detect 100 ms, stop 13 s, rendezvous 2.2 s"):
            expect(words in newest, f"no {words!r} in {newest!r}")
        expect_equal(visit.browser.evaluate("[...document.querySelectorAll('.rounds li')].map((row) => row.querySelectorAll('.bar span').length)"),
                     [5, 4, 3], "parts of the bars")
        expect("first step unknown" in visit.text(".rounds li:nth-child(2)"), visit.text(".rounds li:nth-child(2)"))
        expect("DataLoader worker" in visit.text("#fault pre"), visit.text("#fault"))
        # The next round is a mark in the plots.
        visit.server.set(view=lambda t: {**scenarios.restarted(t), "round": 4})
        visit.browser.wait("[...document.querySelectorAll('#throughput text')].some((mark) => mark.textContent === 'round 4')")


def unknown(page):
    with Visit(page, "unknown") as visit:
        expect_equal(visit.browser.evaluate(f"[...{CELLS}].map((cell) => cell.className)"), ["cell running", "cell starting", "cell unknown"], "cells")
        figures = visit.browser.evaluate("[...document.querySelectorAll('#figures dd')].map((figure) => figure.innerText)")
        expect_equal(figures[:5], ["unknown"] * 5, "figures")
        details = visit.browser.evaluate("Object.fromEntries([...document.querySelectorAll('#details dt')].map((name) => [name.innerText, name.nextSibling.innerText]))")
        for name in ("Phase", "Step", "Step time", "Own work in it", "Communication in it", "Samples/s", "CPU", "Memory", "Node's memory"):
            expect_equal(details[name], "unknown", name)
        expect("unknown" in visit.text("#throughput") and "unknown" in visit.text("#share"), "plots")
        expect("Unknown" in visit.text("#slowest-body"), "slowest")


def other_version(page):
    with Visit(page, "healthy") as visit:
        visit.server.set(view=lambda t: {"version": 2})
        visit.wait_text("#sentence", "the server speaks version 2")


def hostile(page):
    log = scenarios.HOSTILE + "\n" + "10 %\r55 %\r99 %\n" + "\x1b]0;title\x07plain\n<b>needle</b> Needle\n"
    with Visit(page, "hostile", logs={1: log}) as visit:
        expect("<img src=x onerror=alert(1)></script>" in visit.text("#sentence"), visit.text("#sentence"))
        for control in ("\x1b", "\u202e"):
            expect(control not in visit.browser.evaluate("document.body.textContent"), f"{control!r} is in the page")
        visit.browser.click("#details [data-output]")
        visit.wait_text("#output-text", "needle")
        lines = visit.text("#output-text").strip().split("\n")
        expect_equal(lines, ["<img src=x onerror=alert(1)></script><script>alert(2)</script>red \ufffdgnp.exe \"'&amp;", "99 %", "plain",
                             "<b>needle</b> Needle"], "output")
        visit.browser.evaluate("(() => { const search = document.getElementById('output-search'); search.value = 'NEEDLE'; search.dispatchEvent(new Event('input')); })()")
        visit.browser.wait("document.querySelectorAll('#output-text mark').length === 2")
        expect_equal(visit.text("#output-text").strip(), "<b>needle</b> Needle", "lines found")
        seen = visit.server.streams
        expect(seen == 1, f"{seen} streams")
        expect_equal(visit.browser.evaluate("[...document.querySelectorAll('img, iframe, object, embed, script:not([type=module]), b b, [onerror]')].length"), 0, "elements made of texts")
        expect_equal(visit.browser.evaluate("document.scripts.length"), 1, "scripts")


def output(page):
    with Visit(page, "healthy", logs={2: "one\ntwo\n"}) as visit:
        visit.browser.evaluate("document.getElementById('output-rank').value = 2")
        visit.browser.click("#output-button")
        visit.wait_text("#output-text", "two")
        visit.server.set(logs={2: "one\ntwo\nthr\u00e9e\n"})
        visit.wait_text("#output-text", "thr\u00e9e")
        expect_equal(visit.text("#output-text").strip(), "one\ntwo\nthr\u00e9e", "output")
        # A worker that was started again writes a new file.
        visit.server.set(logs={2: "new\n"})
        visit.browser.wait("document.getElementById('output-text').innerText.trim() === 'new'")
        # 403: the reason is shown and nothing is asked again.
        visit.server.set(may_log=False)
        visit.wait_text("#output-note", "output is not shown: --dashboard_logs is off")
        expect_equal(visit.text("#output-button"), "Show", "the button")
        visit.browser.errors[:] = [error for error in visit.browser.errors if "403" not in error]


def connection_lost(page):
    with Visit(page, "healthy") as visit:
        streams = visit.server.streams
        visit.server.set(is_cut=True)
        visit.browser.wait("document.getElementById('connection').className === 'lost'")
        expect("connection lost · the data are" in visit.text("#connection"), visit.text("#connection"))
        expect("Connection lost." in visit.browser.evaluate("document.getElementById('announcement').textContent"), "the announcement")
        expect("grayscale(1)" in visit.browser.evaluate("getComputedStyle(document.querySelector('#grid .cell')).filter"), "cells keep their colour")
        expect_equal(visit.count("#grid [data-rank]"), 4, "cells that are still shown")
        visit.browser.wait("/data are [3-9] s old/.test(document.getElementById('connection').innerText)")
        visit.browser.wait("document.querySelectorAll('#grid .node.stale').length === 1")
        visit.server.set(is_cut=False)
        visit.browser.wait("document.getElementById('connection')?.className === 'live'")
        expect(visit.server.streams > streams, "no second stream")
        expect_equal(visit.count("body.is-lost, #grid .stale"), 0, "grey parts")
        # An open connection that says nothing.
        visit.server.set(is_mute=True)
        visit.browser.wait("document.getElementById('connection').className === 'lost'")
        visit.server.set(is_mute=False)
        visit.browser.wait("document.getElementById('connection')?.className === 'live'")
        visit.browser.errors[:] = [error for error in visit.browser.errors if "net::ERR_" not in error]


def keyboard(page):
    with Visit(page, "hung") as visit:
        visit.browser.evaluate("document.getElementById('ranks').focus()")
        for unused in range(5):
            visit.browser.press("Tab")
            if visit.browser.evaluate("document.activeElement.dataset.rank") is not None:
                break
        expect_equal(visit.browser.evaluate("document.activeElement.dataset.rank"), "13", "the first cell that Tab reaches")
        for key, rank in (("ArrowUp", "5"), ("ArrowRight", "6"), ("ArrowDown", "14"), ("ArrowLeft", "13"), ("Home", "0"), ("End", "15")):
            visit.browser.press(key)
            expect_equal(visit.browser.evaluate("document.activeElement.dataset.rank"), rank, key)
            expect_equal(visit.text("#details h3"), f"Rank {rank}", f"details after {key}")
        expect_equal(visit.browser.evaluate("document.activeElement.getAttribute('aria-label')"), "rank 15, waiting in a collective", "what is read out")
        visit.browser.press("Enter")
        visit.wait_text("#output-button", "Stop")
        expect_equal(visit.browser.evaluate("document.getElementById('output-rank').value"), "15", "whose output is shown")


def phone(page):
    for scenario in ("hung", "buckets", "many", "hostile", "restarted", "straggling", "unknown"):
        with Visit(page, scenario, width=360, height=740) as visit:
            check_width(visit.browser, 360)
            expect(visit.browser.evaluate("document.getElementById('details').getBoundingClientRect().top >= document.getElementById('grid').getBoundingClientRect().bottom"),
                   "details stand beside the grid")


def dark(page):
    for scenario in ("hung", "buckets", "straggling", "failed", "unknown"):
        with Visit(page, scenario) as visit:
            for is_dark, color in ((False, "rgb(255, 255, 255)"), (True, "rgb(21, 24, 28)")):
                visit.browser.set_dark(is_dark)
                expect_equal(visit.browser.evaluate("getComputedStyle(document.body).backgroundColor"), color, "the page's colour")
                expect_equal(visit.browser.evaluate(CONTRAST), [], "texts of too little contrast")


CASES = {case.__name__: case for case in (healthy, opened_late, buckets, hung, many_ranks, states, restart, unknown, other_version, hostile, output, connection_lost, keyboard, phone, dark)}


def check_real(url):
    """Before any server: what it says is what is shown."""
    with browser.Browser(browser.find()) as tab:
        tab.resize(1280, 900)
        tab.open(url)
        tab.wait("document.getElementById('connection')?.className === 'live'")
        with urllib.request.urlopen(urllib.parse.urljoin(url, "status.json"), timeout=browser.PATIENCE_S) as reply:
            job = json.load(reply)
        expect_equal(job["version"], 1, "version")
        ranks = sorted(rank["rank"] for node in job["nodes"] for rank in node["ranks"])
        tab.wait(f"{CELLS}.length === {len(ranks)}")
        expect(tab.evaluate("document.getElementById('sentence').innerText"), "no sentence")
        expect(not tab.evaluate("/NaN|undefined|\\[object/.test(document.body.innerText)"), f"a value that the page does not understand:\n{tab.text()}")
        tab.resize(360, 740, is_phone=True)
        check_width(tab, 360)
        check_quiet(tab, url)
        print(f"{url}: {len(ranks)} ranks: {tab.evaluate('document.getElementById(`sentence`).innerText')}")


def take_screenshot(arguments):
    width, height = map(int, arguments.size.split("x"))
    server = None
    try:
        url = arguments.url
        if not url:
            # A past, to plot: a scenario's seconds pass in hundredths.
            server = mock_server.MockServer(arguments.page, arguments.scenario, every_s=1)
            url = server.url
        with browser.Browser(browser.find()) as tab:
            tab.resize(width, height, is_phone=width < 500, scale=2 if width < 500 else 1)
            tab.set_dark(arguments.dark)
            if server and arguments.past:
                play_past(tab, server, arguments.past)
            tab.open(url)
            tab.wait(f"{CELLS}.length && document.getElementById('connection')?.className === 'live'")
            if server and arguments.past:
                tab.wait("past.isOver")
            tab.screenshot(arguments.screenshot, is_whole=arguments.whole)
    finally:
        if server:
            server.__exit__()


def play_past(tab, server, past_s):
    """Lets the page believe that `past_s` seconds have passed, a job's status each second."""
    started = time.monotonic()
    server.set(started=started - past_s)
    events = json.dumps([server.view(second) for second in range(past_s)])
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=f"""
      const past = {{ now: 0, isOver: false, events: {events} }};
      const clock = performance.now.bind(performance);
      performance.now = () => past.isOver ? clock() + {past_s} * 1000 : past.now * 1000;
      const listen = EventSource.prototype.addEventListener;
      EventSource.prototype.addEventListener = function (name, heard) {{
        listen.call(this, name, (event) => {{
          for (; past.now < past.events.length; past.now++) heard({{ data: JSON.stringify(past.events[past.now]) }});
          past.isOver = true;
          heard(event);
        }});
      }};""")


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("cases", nargs="*")
    for option in ("--page", "--url", "--screenshot", "--scenario"):
        parser.add_argument(option)
    parser.add_argument("--past", type=int, default=0)
    parser.add_argument("--size", default="1280x900")
    for option in ("--dark", "--whole", "--list"):
        parser.add_argument(option, action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return 0
    if browser.find() is None:
        print("SKIPPED: no chromium here; tools/setup --with-browser installs it")
        return 0
    if arguments.screenshot:
        take_screenshot(arguments)
        return 0
    if arguments.url:
        check_real(arguments.url)
        return 0
    failed = 0
    for name in arguments.cases or CASES:
        try:
            CASES[name](arguments.page)
            print(f"{name}: passed", flush=True)
        except (Failure, AssertionError, RuntimeError, TimeoutError, EOFError) as error:
            failed += 1
            print(f"{name}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
