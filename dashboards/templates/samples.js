// Shows all lost and gained samples of a report: search, filters, pages, word-level differences.
// Written by dashboards/views/samples/packed.py: an index and blocks of samples, each JSON, deflated, in base64. A block is
// decoded when one of its samples is shown or searched. Texts come from models: they are only ever set as textContent.
"use strict";
(async () => {
  const PAGE = 10, CACHED_BLOCKS = 24, AHEAD = 4, MAX_CELLS = 2e6, LONG_CHARS = 600, TYPING_MS = 150, PAUSE_MS = 100;
  const LOST = 0, SEARCHED = [0, 1, 2, 4, 7];  // id, prompt, target, both answers
  const byId = id => document.getElementById(id);
  const part = name => byId(`samples-${name}`);

  async function unpack(id) {
    const raw = atob(byId(id).textContent), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(plain).text());
  }

  const kept = new Map();  // the blocks used last, decoded or being decoded
  function block(at) {
    const found = kept.get(at) ?? unpack(`samples-block-${at}`);
    kept.delete(at);
    kept.set(at, found);
    if (kept.size > CACHED_BLOCKS) kept.delete(kept.keys().next().value);
    return found;
  }

  function element(tag, {text, type, into} = {}, ...children) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (type) made.className = type;
    made.append(...children);
    into?.append(made);
    return made;
  }

  // --- differences

  // Scripts without spaces between words are compared character by character.
  const WORD = /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}]|(?:(?![\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}])[\p{L}\p{M}\p{N}_])+|\s+|./gsu;

  // Marks, for both lists of words, those that are not in their longest common subsequence.
  function changed(left, right) {
    const marks = [new Uint8Array(left.length), new Uint8Array(right.length)];
    let start = 0, ends = [left.length, right.length];
    while (start < Math.min(...ends) && left[start] === right[start]) start++;
    while (Math.min(...ends) > start && left[ends[0] - 1] === right[ends[1] - 1]) ends = [ends[0] - 1, ends[1] - 1];
    marks[0].fill(1, start, ends[0]);
    marks[1].fill(1, start, ends[1]);
    const rows = ends[0] - start, columns = ends[1] - start, width = columns + 1;
    if (rows * columns > MAX_CELLS) return marks;
    const common = new Uint16Array((rows + 1) * width);  // length of the subsequence from (i, j) on
    for (let i = rows - 1; i >= 0; i--)
      for (let j = columns - 1; j >= 0; j--)
        common[i * width + j] = left[start + i] === right[start + j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    for (let i = 0, j = 0; i < rows && j < columns;) {
      if (left[start + i] === right[start + j]) {
        marks[0][start + i++] = 0;
        marks[1][start + j++] = 0;
      } else if (common[(i + 1) * width + j] >= common[i * width + j + 1]) i++;
      else j++;
    }
    return marks;
  }

  function marked(words, marks) {
    const pre = element("pre");
    for (let from = 0, to; from < words.length; from = to) {
      for (to = from + 1; to < words.length && marks[to] === marks[from];) to++;
      const text = words.slice(from, to).join("");
      pre.append(marks[from] ? element("mark", {text}) : text);
    }
    return pre;
  }

  // --- one sample

  function readable(pre, name) {
    pre.dir = "auto";
    if (pre.textContent.length > LONG_CHARS) {  // it scrolls, for the keyboard also
      pre.tabIndex = 0;
      pre.role = "region";
      pre.ariaLabel = name;
    }
    return pre;
  }

  function card(place, sample) {
    const [at, i] = place, [groupAt, kind, subsets] = index.blocks[at], group = index.groups[groupAt];
    const [id, prompt, target, headBefore, before, factsBefore, headAfter, after, factsAfter] = sample;
    const words = [before, after].map(text => text.match(WORD) ?? []), marks = changed(...words);
    const subset = index.subsets[subsets[i]];
    const box = element("article", {type: "sample"});
    const head = element("h3", {text: kind === LOST ? "Lost " : "Gained ", into: box});
    element("small", {text: subset === "default" ? group.name : `${group.name} (${subset})`, into: head});
    box.append(readable(element("pre", {text: prompt, type: "prompt"}), "Prompt"));
    const answers = element("div", {type: "answers", into: box});
    const answer = (name, pre, type) => element("div", {type, into: answers}, element("h4", {text: name}), readable(pre, name));
    answer("Expected", element("pre", {text: target}));
    answer(headBefore, marked(words[0], marks[0]), kind === LOST ? "then" : "now");
    answer(headAfter, marked(words[1], marks[1]), kind === LOST ? "now" : "then");
    const more = element("details", {into: box}, element("summary", {text: "Tokens, finish reason, time and settings"}));
    const facts = element("dl", {into: more});
    const rows = [["Before", `${factsBefore}; ${group.facts[0]}`], ["After", `${factsAfter}; ${group.facts[1]}`],
      ["Settings", group.settings], ["Sample", id]];
    for (const [name, text] of rows) if (text) facts.append(element("dt", {text: name}), element("dd", {text}));
    return box;
  }

  // --- search and pages

  let found = [], page = 0;  // found: [block, position]
  let searches = 0, pages = 0;  // an older search or page ends when a newer one begins

  // Yields the places that fit the three choices, block by block.
  function* chosen() {
    const [group, subset, kind] = ["group", "subset", "kind"].map(name => part(name).value);
    for (const [at, [groupAt, kindAt, subsets]] of index.blocks.entries()) {
      if (group !== "" && groupAt !== Number(group) || kind !== "" && kindAt !== Number(kind)) continue;
      const places = [];
      for (const [i, one] of subsets.entries()) if (subset === "" || one === Number(subset)) places.push([at, i]);
      if (places.length) yield [at, places];
    }
  }

  async function matching(at, places, words) {
    if (!words.length) return places;
    const samples = await block(at);
    return places.filter(([, i]) => {
      const text = SEARCHED.map(field => samples[i][field]).join("\n").toLowerCase();
      return words.every(word => text.includes(word));
    });
  }

  async function search() {
    const mine = ++searches, words = part("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    found = [];
    page = 0;
    let isShown = false, paused = performance.now();
    const wanted = [...chosen()];
    for (const [k, [at, places]] of wanted.entries()) {
      if (words.length && wanted[k + AHEAD]) block(wanted[k + AHEAD][0]);
      const fits = await matching(at, places, words);
      if (mine !== searches) return;
      found.push(...fits);
      if (words.length && performance.now() - paused > PAUSE_MS) {  // let the page breathe
        if (!isShown && found.length >= PAGE) {
          isShown = true;
          await show();
        }
        say(true);
        await new Promise(done => setTimeout(done));
        if (mine !== searches) return;
        paused = performance.now();
      }
    }
    if (!isShown) await show();
    say(false);
  }

  function say(isSearching) {
    const from = page * PAGE, to = Math.min(from + PAGE, found.length);
    const range = found.length ? `${from + 1} to ${to} of ${found.length}` : "no sample";
    part("count").textContent = isSearching ? `${range}, searching …` : range;
    part("back").disabled = page === 0;
    part("next").disabled = to >= found.length;
  }

  async function show() {
    const mine = ++pages, places = found.slice(page * PAGE, (page + 1) * PAGE);
    const cards = await Promise.all(places.map(async place => card(place, (await block(place[0]))[place[1]])));
    if (mine === pages) part("list").replaceChildren(...cards);
  }

  async function turnPage(by) {
    page += by;
    say(false);
    await show();
    part("tools").scrollIntoView();
  }

  // --- start

  if (!globalThis.DecompressionStream) return;
  const index = await unpack("samples-index");
  const options = (name, texts) => texts.forEach((text, value) => element("option", {text, into: part(name)}).value = value);
  options("group", index.groups.map(group => group.name));
  options("subset", index.subsets);
  for (const name of ["group", "subset"]) part(name).parentElement.hidden = part(name).length < 3;
  for (const name of ["group", "subset", "kind"]) part(name).addEventListener("change", search);
  let typing;
  part("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, TYPING_MS);
  });
  part("back").addEventListener("click", () => turnPage(-1));
  part("next").addEventListener("click", () => turnPage(1));
  await search();
  document.documentElement.classList.add("live");
})();
