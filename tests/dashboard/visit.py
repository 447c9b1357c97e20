"""What the cases share: a visit to a page, and what must hold of every one."""

import json

import browser
import mock_server

CELLS = "document.querySelectorAll('#grid [data-rank]')"
# An element's colours: of its text and of what lies behind it, for the contrast that WCAG asks for.
CONTRAST = """(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => channels(color).slice(0, 3).map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (node) => { for (; node; node = node.parentElement) { const color = getComputedStyle(node).backgroundColor;
    if (channels(color)[3] !== 0) return color; } return 'rgb(255, 255, 255)'; };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const has_text = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!has_text || !node.checkVisibility() || ['NOSCRIPT', 'SCRIPT', 'STYLE'].includes(node.tagName)) continue;
    const style = getComputedStyle(node), front = light(node.namespaceURI.includes('svg') ? style.fill : style.color), back = light(behind(node));
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (contrast < 4.5) found.push(`${node.tagName} ${node.className} ${contrast.toFixed(2)} ${node.textContent.slice(0, 40)}`);
  }
  return found;
})()"""


class Failure(AssertionError):
    pass


def expect(holds, what):
    if not holds:
        raise Failure(what)


def expect_equal(found, wanted, what):
    expect(found == wanted, f"{what}: {found!r}, wanted {wanted!r}")


class Visit:
    """A page, a server and a browser for one case."""

    def __init__(self, page, scenario, width=1280, height=900, **knobs):
        self.server = mock_server.MockServer(page, scenario)
        self.server.set(**knobs)
        self.browser = None
        try:
            self.browser = browser.Browser(browser.find(), width, height)
            self.browser.resize(width, height, is_phone=width < 500)
            self.browser.open(self.server.url)
            self.browser.wait(f"{CELLS}.length && document.getElementById('connection').className === 'live'")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        try:
            if kind is None:
                check_quiet(self.browser, self.server.url)
        finally:
            self.close()

    def close(self):
        if self.browser:
            self.browser.close()
        self.server.__exit__()

    def text(self, selector):
        return self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def count(self, selector):
        return self.browser.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    def wait_text(self, selector, words):
        self.browser.wait(f"document.querySelector({json.dumps(selector)}).innerText.includes({json.dumps(words)})")


def check_quiet(tab, url):
    """No dialog, no error, and no request to anybody but the page's own server."""
    expect_equal(tab.dialogs, [], "dialogs")
    expect_equal(tab.errors, [], "errors of the page")
    outside = [request for request in tab.requests if not request.startswith((url, "data:", "about:"))]
    expect_equal(outside, [], "requests to others")


def check_width(tab, width):
    # A phone widens its innerWidth to what does not fit.
    has = tab.evaluate("document.documentElement.scrollWidth")
    expect(has <= width, f"the page is {has} px wide in a window of {width}")
