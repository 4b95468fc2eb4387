"""What keeps a page from people who cannot see it, cannot use a pointer, or do not want things to move.

assert page.evaluate(BARRIERS) == []        # names, captions, text alternatives, order of headings, nothing that moves
assert barriers_of_keyboard(page) == []     # everything is reached, and seen to be reached
"""

from playwright.sync_api import Page

BARRIERS = """() => {
  const found = [];
  const say = (what, e) => found.push(`${what}: ${e.outerHTML.slice(0, 90)}`);
  const words = e => (e ? e.textContent : '').trim();
  const named = e => e.getAttribute('aria-label')?.trim()
    || (e.getAttribute('aria-labelledby') || '').split(/\\s+/)
      .map(id => words(document.getElementById(id))).join('').trim();
  if (!document.documentElement.lang) found.push('the page has no language');
  if (!document.title.trim()) found.push('the page has no title');
  if (document.querySelectorAll('main').length !== 1) found.push('the page has not one main part');
  for (const e of document.querySelectorAll('input, select, textarea, button'))
    if (!named(e) && ![...(e.labels || [])].some(words) && !words(e)) say('control without a name', e);
  for (const e of document.querySelectorAll('fieldset'))
    if (!words(e.querySelector('legend'))) say('group without a name', e);
  for (const e of document.querySelectorAll('[role=region], [role=group], nav'))
    if (!named(e)) say('part without a name', e);
  for (const e of document.querySelectorAll('a')) if (!words(e) && !named(e)) say('link without words', e);
  for (const e of document.querySelectorAll('summary')) if (!words(e)) say('fold without words', e);
  for (const e of document.querySelectorAll('table')) {
    if (!words(e.caption)) say('table without a caption', e);
    if (!e.querySelector('thead th[scope=col]')) say('table without heads of columns', e);
    for (const row of e.querySelectorAll('tbody tr'))
      if (!row.querySelector('th[scope]') && !row.parentElement.querySelector('th[scope=rowgroup]'))
        say('row without a head', row);
  }
  for (const e of document.querySelectorAll('svg')) {
    if (e.getAttribute('aria-hidden') === 'true') continue;
    if (e.getAttribute('role') !== 'img' || named(e).length < 10) say('picture without words', e);
  }
  let level = 0;
  for (const e of document.querySelectorAll('h1, h2, h3, h4')) {
    const now = Number(e.tagName[1]);
    if (now > level + 1) say(`heading of level ${now} below ${level}`, e);
    level = now;
  }
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) found.push(`id ${id} is used twice`);
  for (const e of document.querySelectorAll('*')) {
    const style = getComputedStyle(e);
    if (style.animationName !== 'none' || parseFloat(style.transitionDuration) > 0) say('it moves', e);
  }
  return found;
}"""
"""Script for `page.evaluate`: what is wrong, in words."""

_FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e), box = e.getBoundingClientRect();
  const seen = parseFloat(style.outlineWidth) >= 2 && style.outlineStyle !== 'none';
  const inside = box.bottom > 0 && box.top < innerHeight && box.width > 0;
  e.dataset.reached = '1';
  return {what: e.outerHTML.slice(0, 90), seen, inside};
}"""

_MISSED = """() => [...document.querySelectorAll('a[href], summary, select, input:checked, [tabindex="0"]')]
  .filter(e => !e.dataset.reached && e.checkVisibility({contentVisibilityAuto: true}))
  .map(e => `never reached: ${e.outerHTML.slice(0, 90)}`)"""

_TABS = 400
"""More stops than any page of a test has."""


def barriers_of_keyboard(page: Page) -> list[str]:
    """Press Tab through the whole page and return what is reached unseen, and what is never reached."""
    problems: list[str] = []
    page.evaluate("() => { document.activeElement?.blur(); scrollTo(0, 0); }")
    for _ in range(_TABS):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        if focused is None:
            break
        if not focused["seen"]:
            problems.append(f"focus is not seen: {focused['what']}")
        if not focused["inside"]:
            problems.append(f"focus is out of sight: {focused['what']}")
    missed: list[str] = page.evaluate(_MISSED)
    return [*problems, *missed]
