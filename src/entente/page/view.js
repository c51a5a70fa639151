"use strict";
/* What the page shows, and what one can do on it. All that a user has chosen is in `state`, which the address repeats; `update`
changes it, computes what has to be computed, and draws everything again. map.js draws the attention. */

const CONTENT = JSON.parse(document.getElementById("content").textContent);
const PATTERNS = compile(CONTENT.patterns);
const LIMIT = CONTENT.limit; // pieces that the page reads
const ALTERNATIVES = 5; // likeliest pieces shown at each place
const TYPING_PAUSE = 200; // milliseconds
const DEFAULTS = {
  language: navigator.language.startsWith("fr") ? "fr" : "en",
  source: CONTENT.sentences[0].source,
  target: "",
  mode: "free", // or begins, is: what `target` says about the translation
  open: 0, // the model whose attention is shown
  kind: "", layer: 1, head: 1,
  words: false, mass: 90,
  row: null, column: null, // of the map
  place: null, // of the translation
  changes: [[], []], // interventions of each model
  nBest: false,
};
const state = structuredClone(DEFAULTS);
let typing = null, pending = null; // the timer that waits for a pause, and a function that returns what has been typed until then
let sliding = null; // the slider that is being moved

const isChange = (x) => x !== null && typeof x === "object" && KINDS.some((kind) => kind in x);
const VALID = { // what an address may say, by key; all else is left at its default
  language: (x) => Object.hasOwn(TEXTS, x),
  mode: (x) => ["free", "begins", "is"].includes(x),
  open: (x) => isIndex(x) && x < models.length,
  kind: (x) => Object.hasOwn(PLACES, x),
  layer: isCount, head: isCount,
  mass: (x) => typeof x === "number" && x >= 0 && x <= 100,
  row: isIndex, column: isIndex, place: isIndex,
  changes: (x) => Array.isArray(x) && x.length === DEFAULTS.changes.length && x.every((all) => Array.isArray(all) && all.every(isChange)),
};

class Shown {
  /** A model of the page. Its weights are read later. */
  constructor(data) {
    const { settings, src, tgt, words } = data;
    this.data = data;
    this.model = new (settings.name === "transformer" ? Transformer : BiRNN)({}, settings);
    this.isReady = false;
    this.src = new Tokenizer(src, PATTERNS);
    this.tgt = new Tokenizer({ ...(tgt ?? src), plain: false }, PATTERNS);
    this.words = new Set(words.split(" ").filter(Boolean));
    this.kinds = Object.keys(PLACES).filter((kind) => placesOf(this.model, kind).length);
    this.results = null;
  }

  get result() {
    return this.results.now ?? this.results.plain;
  }
}

const models = CONTENT.models.map((data) => new Shown(data));

/** Returns the page's sentence that is shown, or undefined for another one. */
const storedSentence = () => CONTENT.sentences.find(({ source }) => source === state.source);

/* ---- helpers ---- */

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const node = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

/** Puts children into a container, unless a slider in it is being moved. The focus stays at the element with the same key or, if
 * it is gone, in the container. */
function fill(container, ...children) {
  if (container.contains(sliding)) return;
  const active = document.activeElement, key = container.contains(active) && active.dataset.key;
  container.replaceChildren(...children.flat().filter((child) => child != null && child !== false));
  if (key) (container.querySelector(`[data-key="${CSS.escape(key)}"]`) ?? container.querySelector("button, input, [tabindex='0']"))?.focus({ preventScroll: true });
}

function say(name, values = {}) {
  const text = TEXTS[state.language][name], isFrench = state.language === "fr"; // which has no-break spaces before and in some marks
  return (isFrench ? text.replace(/ (?=[;:?!»])|(?<=«) /g, "\u00a0") : text).replace(/\{(\w+)\}/g, (_, key) => values[key]);
}

/** Writes a number as the language does, with a real minus sign. */
const written = (text) => text.replace("-", "−").replace("Infinity", "∞").replace(".", state.language === "fr" ? "," : ".");

function format(value, digits = 2, sign = false) {
  const text = value.toFixed(digits), isZero = Number(text) === 0;
  return written(isZero ? text.replace("-", "") : `${sign && value > 0 ? "+" : ""}${text}`);
}

/** Writes a share as a percentage; a small one is not 0. */
function percent(share) {
  const text = share > 0 && share < 0.005 ? "<1" : String(Math.round(100 * share));
  return state.language === "fr" ? `${text}\u00a0%` : `${text}%`;
}

function button(text, isPressed, onclick, attributes = {}) {
  return element("button", { "aria-pressed": isPressed === null ? null : String(isPressed), onclick, "data-key": text, ...attributes }, text);
}

/* ---- the address ---- */

function writeAddress() {
  const values = Object.entries(state).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(DEFAULTS[key]));
  const text = values.map(([key, value]) => `${key}=${encodeURIComponent(typeof value === "string" ? value : JSON.stringify(value))}`);
  try {
    history.replaceState(null, "", `#${text.join("&")}`);
  } catch {
    // Some browsers refuse many changes in a short time; the next one writes all of them.
  }
}

function readAddress() {
  Object.assign(state, structuredClone(DEFAULTS));
  for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
    if (!Object.hasOwn(DEFAULTS, key)) continue;
    try {
      const value = typeof DEFAULTS[key] === "string" ? text : JSON.parse(text);
      if (VALID[key]?.(value) ?? typeof value === typeof DEFAULTS[key]) state[key] = value;
    } catch {
      // An address that was cut off: what is left of it counts.
    }
  }
}

/* ---- computing ---- */

/** Reads a source and a target, and returns what the page shows of them. */
function readPair(shown, src, tgt, ended) {
  const { logProbabilities, cache } = shown.model.read(src, [BOS, ...tgt]), produced = [...tgt, EOS];
  const weights = shown.kinds.map((kind) => [kind, placesOf(shown.model, kind).map((place) => cache[`${place}.hook_pattern`])]);
  return {
    src, tgt, ended, cache,
    chosen: produced.map((token, t) => logProbabilities[t][token]),
    alternatives: logProbabilities.map((row) => largest(row, ALTERNATIVES).map((token) => [token, row[token]])),
    weights: Object.fromEntries(weights),
  };
}

/** Translates the sentence with interventions. Returns the result, or throws an Error if it is too long. */
function translate(shown, interventions, beam = 1) {
  const src = [...shown.src.encode(clean(state.source, PATTERNS)), EOS];
  const forced = state.mode === "free" ? [] : shown.tgt.encode(clean(state.target, PATTERNS));
  for (const [name, { length: n }] of [["tooLong", src], ["targetTooLong", forced]]) {
    if (n > LIMIT) throw new Error(say(name, { n, limit: LIMIT }));
  }
  intervene(shown.model, interventions);
  try {
    if (beam > 1) return search(shown.model, src, { ...shown.data.search, beam, n_best: beam }, state.mode === "is" ? [] : forced);
    const settings = { ...shown.data.search, beam: 1, n_best: 1 };
    const [{ tokens, ended }] = state.mode === "is" ? [{ tokens: forced, ended: true }] : search(shown.model, src, settings, forced);
    return readPair(shown, src, tokens, ended);
  } finally {
    shown.model.clear();
  }
}

/** Computes what a model shows: `plain` without its changes and, if there are any, `now` with them, and `before`, the
 * log-probabilities of the plain translation with them. */
function compute(shown, interventions) {
  const sentence = JSON.stringify([state.source, state.mode, state.mode === "free" || state.target]);
  if (!shown.isReady) return;
  shown.problem = "";
  if (!clean(state.source, PATTERNS)) {
    shown.results = null;
    return;
  }
  try {
    if (shown.sentence !== sentence) {
      shown.results = null;
      [shown.plain, shown.sentence] = [translate(shown, []), sentence];
    }
    shown.results = { plain: shown.plain };
    if (interventions.length) {
      const now = translate(shown, interventions), { src, tgt } = shown.plain;
      intervene(shown.model, interventions);
      const rows = shown.model.read(src, [BOS, ...tgt]).logProbabilities;
      shown.results = { plain: shown.plain, now, before: [...tgt, EOS].map((token, t) => rows[t][token]) };
    }
    if (state.nBest) shown.results.nBest = translate(shown, interventions, 5);
  } catch (error) {
    shown.problem = error.message;
    shown.sentence = null;
    if (!shown.results?.plain) shown.results = null;
  } finally {
    shown.model.clear();
  }
}

/** Changes the state, computes and draws. What was selected in another translation is selected no more, weights that were set in
 * another sentence are set no more, and the future is hidden again unless the target is known. */
function update(changes = {}) {
  clearTimeout(typing);
  changes = { ...pending?.(), ...changes };
  typing = pending = null;
  const { source, target, mode } = state;
  Object.assign(state, changes);
  if (state.source !== source || state.target !== target || state.mode !== mode) {
    const lasting = state.changes.map((all) => all.filter((each) => state.source === source || !("weights" in each)));
    Object.assign(state, { row: null, column: null, place: null, changes: lasting, ...changes });
  }
  if (state.mode !== "is") state.changes = state.changes.map((all) => all.filter((each) => !("unmask" in each)));
  const shown = models[state.open];
  if (!shown.kinds.includes(state.kind)) Object.assign(state, { kind: shown.kinds[shown.kinds.length - 1] ?? "", ...bestHead(shown) });
  writeAddress();
  models.forEach((each, i) => compute(each, state.changes[i]));
  draw();
}

/** Returns the head of the attention to the source that aligns words best or, without gold links, that is worth most BLEU. */
function bestHead({ data: { errors, importance } }) {
  const best = Math.min(...errors.flat()), layer = errors.findIndex((row) => row.includes(best));
  if (layer >= 0) return { layer: layer + 1, head: errors[layer].indexOf(best) + 1 };
  const heads = (importance.parts ?? []).filter(({ interventions: [{ mute, head }] }) => mute === "cross" && head);
  const { layer: i = 1, head = 1 } = heads.sort((a, b) => a.bleu - b.bleu)[0]?.interventions[0] ?? {};
  return { layer: i, head };
}

/** Adds an intervention to those of the open model, or removes it. */
function toggle(intervention) {
  const isPart = (each) => intervention.no_residual === "both" && each.no_residual; // leaving out all includes each
  const rest = state.changes[state.open].filter((each) => !isPart(each) && JSON.stringify(each) !== JSON.stringify(intervention));
  setChanges(has(intervention) ? rest : [...rest, intervention]);
}

function setChanges(interventions) {
  update({ changes: state.changes.map((each, i) => (i === state.open ? interventions : each)) });
}

const has = (intervention) => state.changes[state.open].some((each) => JSON.stringify(each) === JSON.stringify(intervention));

/* ---- drawing ---- */

function draw() {
  document.documentElement.lang = state.language;
  document.querySelectorAll("[data-text]").forEach((node) => (node.textContent = say(node.dataset.text)));
  document.querySelectorAll("[data-title]").forEach((node) => (node.title = node.ariaLabel = say(node.dataset.title)));
  for (const language of ["en", "fr"]) byId(language).setAttribute("aria-pressed", String(state.language === language));
  const [{ languages }] = CONTENT.models;
  byId("direction").textContent = languages.join(" → ");
  ["source", "target"].forEach((id, i) => (byId(id).lang = languages[i]));
  const count = (number) => number.toLocaleString(state.language);
  const summaries = models.map(({ data: { parameters, steps, ...data } }) => say("summary", { ...data, parameters: count(parameters), steps: count(steps) }));
  byId("about").textContent = say("about", { models: summaries.join(", ") });
  byId("surprise").textContent = `${say("surprise")} ${smoothing()}`;
  drawSource();
  fill(byId("cards"), models.map(card));
  fill(byId("details"), models[state.open].results ? details(models[state.open]) : []);
  drawAttention(models[state.open]);
  drawSwitches(models[state.open]);
}

/** Says how sure label smoothing lets a model be. */
function smoothing() {
  const { smoothing: share } = models[state.open].data;
  return share ? say("smoothing", { n: written(String(share)), p: percent(1 - share) }) : "";
}

function drawSource() {
  for (const id of ["source", "target"]) if (!typing && byId(id).value !== state[id]) byId(id).value = state[id];
  const place = CONTENT.sentences.findIndex(({ source }) => source === state.source);
  const options = CONTENT.sentences.map(({ source }, i) => element("option", { value: i, selected: i === place }, source));
  fill(byId("stored"), place < 0 && element("option", { value: -1, selected: true }, say("own")), options);
  byId("mode").value = state.mode;
  byId("use-reference").hidden = !CONTENT.sentences[place]?.reference;
  const { words } = models[state.open], source = clean(state.source, PATTERNS);
  const unseen = words.size ? distinctWords(source, PATTERNS).filter((word) => !words.has(word)) : [];
  const message = source ? unseen.length && say("unseen", { words: unseen.join(", ") }) : say("type");
  if (byId("unseen").textContent !== (message || "")) byId("unseen").textContent = message || ""; // otherwise a screen reader would read it again
}

/** Returns a model's card: its translation, and with changes the one before them. */
function card(shown, index) {
  const { data, results, problem } = shown;
  const open = models.length > 1 && button(say("showAttention"), state.open === index, () => update({ open: index, row: null, column: null, place: null }), { "data-key": `open ${index}` });
  const bleu = data.score && element("span", { class: "small" }, ` ${say("bleu", { n: format(data.score.bleu, 1), split: data.score.split })}`);
  const title = element("h3", {}, element("span", {}, data.name, bleu), open);
  if (index && data.differences) title.append(element("div", { class: "small" }, say("differs", { settings: data.differences })));
  if (!results) return element("div", { class: "card" }, title, problem ? element("p", { class: "problem" }, problem) : shown.isReady ? null : say("reading"));
  const { plain, now, before } = results;
  const rows = [pieceRow(shown, index, shown.result, now && say("now"), now && new Set(changedPlaces(now.tgt, plain.tgt)))];
  if (now) {
    const differences = before.map((value, t) => format(value - plain.chosen[t], 2, true));
    rows.push(pieceRow(shown, index, plain, say("before"), new Set(changedPlaces(plain.tgt, now.tgt)), differences));
    const same = JSON.stringify(plain.tgt) === JSON.stringify(now.tgt);
    const sum = before.slice(0, plain.tgt.length + plain.ended).reduce((total, value, t) => total + value - plain.chosen[t], 0);
    const unchanged = same && say(before.every((value, t) => value === plain.chosen[t]) ? "nothing" : "unchanged");
    rows.push(element("p", { class: "small" }, unchanged || "", " ", say("beforeHint", { sum: format(sum, 2, true) })));
  }
  if (problem) rows.push(element("p", { class: "problem" }, say("failed", { problem })));
  const { reference } = storedSentence() ?? {};
  if (reference) rows.push(element("p", { class: "small" }, say("reference", { text: reference })));
  if (shown.model.settings.mask_future === false && state.mode !== "is") rows.push(element("p", { class: "problem" }, say("notAsDecoded")));
  const similarity = meanSimilarity(shown);
  if (similarity) rows.push(element("p", { class: "small" }, say("similarity", { n: format(similarity) })));
  return element("div", { class: "card" }, title, rows);
}

/** Returns the mean cosine similarity of the encoder's outputs at different places of the source. */
function meanSimilarity({ model, result: { cache } }) {
  const ofLastLayer = () => cache[`${model.encoder[model.encoder.length - 1].place}.hook_resid_post`];
  const rows = cache["encoder.hook_state"] ?? model.norm("encoder_norm", ofLastLayer());
  const pairs = rows.flatMap((x, s) => rows.slice(s + 1).map((y) => dot(x, y) / (norm(x) * norm(y))));
  return pairs.length ? pairs.reduce((a, b) => a + b, 0) / pairs.length : null;
}

/** Returns the likeliest pieces at the selected place of the open model's translation, and its five best translations. */
function details(shown) {
  const toggleBest = button(say(state.nBest ? "hideNBest" : "nBest"), null, () => update({ nBest: !state.nBest }), { "data-key": "nbest" });
  return [state.place !== null && alternatives(shown), toggleBest, shown.results.nBest && nBestList(shown, shown.results.nBest)];
}

/** Returns a translation as a row of pieces with their probabilities. notes: what stands below the pieces instead. */
function pieceRow(shown, index, { tgt, chosen, ended }, label, changed, notes) {
  const pieces = shown.tgt.labels(ended ? [...tgt, EOS] : tgt).map((piece, t) => {
    const note = notes ? notes[t] : percent(Math.exp(chosen[t]));
    const attributes = {
      class: ["piece", piece.startsWith("\u2581") && "space", changed?.has(t) && "changed"].filter(Boolean).join(" "),
      style: notes ? null : `--surprise: ${Math.min(1, -chosen[t] / 3).toFixed(3)}`,
      "aria-label": `${piece.replace("\u2581", "")} ${note}`,
      "data-key": `piece ${index} ${t}`,
    };
    const text = [piece.replace("\u2581", "") || "\u2581", element("small", {}, note)];
    if (notes) return element("span", { ...attributes, role: "listitem" }, text);
    const isOpen = state.open === index && state.place === t;
    const onclick = () => update({ open: index, place: isOpen ? null : t, ...(state.kind === "encoder" || state.words ? {} : { row: isOpen ? null : t, column: null }) });
    return element("button", { ...attributes, "aria-pressed": String(isOpen), onclick }, text);
  });
  const end = !ended && element("span", { class: "small" }, ` … (${say("cut")})`);
  const attributes = { class: notes ? "row old" : "row", role: notes && "list", lang: shown.data.languages[1] };
  return element("div", attributes, label && element("b", { lang: state.language }, label), pieces, end);
}

/** Returns the indices of the ids in `row` that are not part of its longest common subsequence with `other`. */
function changedPlaces(row, other) {
  const lengths = Array.from({ length: row.length + 1 }, () => new Array(other.length + 1).fill(0));
  for (let i = row.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      lengths[i][j] = row[i] === other[j] ? 1 + lengths[i + 1][j + 1] : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const places = [];
  for (let i = 0, j = 0; i < row.length; ) {
    if (j < other.length && row[i] === other[j]) [i, j] = [i + 1, j + 1];
    else if (j < other.length && lengths[i][j + 1] > lengths[i + 1][j]) j++;
    else places.push(i++);
  }
  return places;
}

function alternatives(shown) {
  const { tgt, alternatives: rows } = shown.result, place = Math.min(state.place, tgt.length);
  const [piece] = shown.tgt.labels([[...tgt, EOS][place]]);
  const buttons = rows[place].map(([token, value]) => {
    const beginning = tgt.slice(0, place), isEnd = token === EOS;
    const onclick = () => update({ mode: isEnd ? "is" : "begins", target: shown.tgt.decode(isEnd ? beginning : [...beginning, token]) });
    const [label] = shown.tgt.labels([token]);
    return button(`${label} ${percent(Math.exp(value))}`, null, onclick);
  });
  return element("div", { class: "alternatives" }, say("instead", { piece, place: place + 1 }), buttons);
}

function nBestList(shown, hypotheses) {
  const items = hypotheses.map(({ tokens, score }) => {
    const text = shown.tgt.decode(tokens);
    return element("li", {}, button(text || "∅", null, () => update({ mode: "is", target: text })), ` ${format(score, 3)}`);
  });
  return element("div", {}, element("ol", {}, items), element("p", { class: "small" }, say("score")));
}

/* ---- changing the model ---- */

function drawSwitches(shown) {
  const { data, model, kinds } = shown, { settings } = model;
  byId("change-title").textContent = say("change", { name: models.length > 1 ? data.name : say("theModel") });
  const panels = settings.name === "transformer" ? [sublayerTable(shown)] : [readoutSwitches(settings)];
  panels.push(element("div", {}, kinds.map(scaleSlider), settings.mask_future && futureSwitch()));
  fill(byId("switches"), element("div", { class: "panels" }, panels));
  drawActive(shown);
}

/** Lists the changes of all models, and writes those of the open one in Python. */
function drawActive({ data }) {
  const active = state.changes[state.open];
  const chips = models.flatMap(({ data: { name } }, i) => state.changes[i].map((each) => {
    const text = models.length > 1 ? `${name}: ${asPython(each)}` : asPython(each);
    const onclick = () => update({ changes: state.changes.map((all, j) => (i === j ? all.filter((other) => other !== each) : all)) });
    return element("span", { class: "chip" }, text, button("×", null, onclick, { "aria-label": `${say("remove")} ${text}`, "data-key": text }));
  }));
  const reset = button(say("reset"), null, () => update({ changes: [[], []], mode: "free", target: "", row: null, column: null, place: null }), { id: "reset" });
  fill(byId("active"), chips.length ? chips : `${say("none")} `, reset);
  const names = [...new Set(active.map((each) => asPython(each).replace(/\(.*/s, "")))].sort();
  const quoted = JSON.stringify(state.source), target = JSON.stringify(state.target);
  // Without a prefix, Python divides a text that is long or may have three sentences, and translates one in capitals as if it were not.
  const isUnusual = state.source.split(/\s+/).length > 60 || (state.source.match(/[.!?…؟।][^\p{L}\p{N}]*\s/gu) ?? []).length > 1 || (state.source === state.source.toUpperCase() && state.source !== state.source.toLowerCase());
  const prefix = state.mode === "begins" ? `, prefix=${target}` : isUnusual ? ', prefix=""' : "";
  const call = state.mode === "is" ? `score(${quoted}, ${target})` : `translate(${quoted}, beam=1${prefix})`;
  byId("python").textContent = [
    "import entente",
    ...(names.length ? [`from entente.attention.interventions import ${names.join(", ")}`] : []),
    `\nmodel = entente.load(${JSON.stringify(data.path)})`,
    ...(active.length ? [`with model.intervene(${active.map(asPython).join(", ")}):`] : []),
    `${active.length ? "    " : ""}print(model.${call})`,
  ].join("\n");
}

function check(text, checked, intervention, attributes = {}) {
  const input = element("input", { type: "checkbox", checked, onchange: () => toggle(intervention), "data-key": asPython(intervention), ...attributes });
  return element("label", {}, input, ` ${text}`);
}

/** Returns a table with the switches of each sublayer and its residual connection, and what skipping it costs. */
function sublayerTable({ model, data }) {
  const names = ["self", "cross", "ff"].filter((name) => model.settings.sublayers.includes(name)), { residual } = model.settings;
  const all = { no_residual: "both" }, headings = { self: say("self"), cross: say("crossShort"), ff: say("ff") };
  const rows = [...model.encoder, ...model.decoder].map((block) => {
    const [side, index] = block.place.split("."), layer = Number(index) + 1;
    const cells = names.map((name) => {
      if (!block.present.includes(name)) return element("td");
      const without = { no_residual: side, sublayer: name, layer }, skipped = { skip: side, sublayer: name, layer };
      const keeps = residual.includes(name), label = `${say(`side_${side}`)} ${layer}, ${headings[name]}`;
      const cost = costOf(data.importance, ({ skip, sublayer, ...rest }) => skip === side && sublayer === name && rest.layer === layer);
      return element("td", {},
        check(say("residual"), keeps && !has(all) && !has(without), without, { disabled: !keeps || has(all), "aria-label": `${label}, ${say("residual")}` }),
        check(say("sublayer"), !has(skipped), skipped, { "aria-label": `${label}, ${say("sublayer")}` }),
        cost !== null && element("span", { class: "small", title: costTitle(data.importance) }, say("costs", { n: format(cost, 1, true) })));
    });
    return element("tr", {}, element("th", { scope: "row" }, `${say(`side_${side}`)} ${layer}`), cells);
  });
  const head = element("tr", {}, element("th"), names.map((name) => element("th", { scope: "col" }, headings[name])));
  const hint = data.importance.parts && element("p", { class: "small" }, say("skipHint", { split: data.importance.split }));
  return element("div", {}, residual.length ? check(say("allResiduals"), !has(all), all) : null, hint, element("table", {}, head, rows));
}

function readoutSwitches({ readout }) {
  const parts = READOUTS[readout];
  return element("div", {}, `${say("readout")}:`, parts.map((part) => check(say(part), !has({ mute: "readout", part }), { mute: "readout", part })));
}

function futureSwitch() {
  const label = check(say("future"), has({ unmask: "future" }), { unmask: "future" }, { disabled: state.mode !== "is" });
  label.append(element("span", { class: "small" }, ` (${say("futureHint")})`));
  return label;
}

/** Returns a slider from 1/8 to 8, in steps of a quarter of a doubling. */
function scaleSlider(kind) {
  const factor = state.changes[state.open].find(({ scale, layer }) => scale === kind && !layer)?.factor ?? 1;
  const text = element("span", {}, say("scale", { kind: say(kind), n: written(String(factor)) }));
  const oninput = ({ target }) => {
    const value = Number((2 ** Number(target.value)).toPrecision(3));
    text.textContent = say("scale", { kind: say(kind), n: written(String(value)) });
    const rest = state.changes[state.open].filter(({ scale, layer }) => scale !== kind || layer);
    setChanges(value === 1 ? rest : [...rest, { scale: kind, factor: value }]);
  };
  const slider = element("input", { type: "range", min: -3, max: 3, step: 0.25, value: Math.log2(factor), oninput, "data-key": `scale ${kind}` });
  return element("label", { class: "slider" }, slider, " ", text);
}

/** Returns the change of BLEU without a part, from importance.json, or null if it is not there. */
function costOf({ plain, parts = [] }, isPart) {
  const part = parts.find(({ interventions }) => interventions.length === 1 && isPart(interventions[0]));
  return part ? part.bleu - plain.bleu : null;
}

const costTitle = ({ split }) => say("costsHint", { split });

/* ---- events ---- */

function copy(text, node) {
  const done = () => {
    node.textContent = say("copied");
    setTimeout(() => (node.textContent = say(node.dataset.text)), 1500);
  };
  const copying = navigator.clipboard?.writeText(text) ?? Promise.reject(); // there is none without a safe connection
  copying.then(done, () => window.prompt("", text));
}

function listen() {
  const typed = (changes) => {
    clearTimeout(typing);
    pending = changes;
    typing = setTimeout(update, TYPING_PAUSE);
  };
  byId("source").addEventListener("input", () => typed(() => ({ source: byId("source").value, mode: "free", target: "" })));
  byId("target").addEventListener("input", () => {
    typed(() => ({ target: byId("target").value, mode: state.mode === "free" ? "begins" : state.mode }));
  });
  byId("stored").addEventListener("change", ({ target }) => {
    if (target.value >= 0) update({ source: CONTENT.sentences[target.value].source, mode: "free", target: "" });
  });
  byId("mode").addEventListener("change", ({ target: { value } }) => {
    if (pending) update();
    const shown = models[state.open], text = state.target || (shown.results ? shown.tgt.decode(shown.result.tgt) : "");
    update({ mode: value, target: value === "is" ? text : state.target });
  });
  byId("use-reference").addEventListener("click", () => {
    if (pending) update();
    if (storedSentence()) update({ mode: "is", target: storedSentence().reference });
  });
  for (const language of ["en", "fr"]) byId(language).addEventListener("click", () => update({ language }));
  byId("unit-pieces").addEventListener("change", () => update({ words: false, row: null, column: null }));
  byId("unit-words").addEventListener("change", () => update({ words: true, row: null, column: null }));
  byId("mass").addEventListener("input", ({ target }) => update({ mass: Number(target.value) }));
  byId("copy-python").addEventListener("click", ({ target }) => copy(byId("python").textContent, target));
  byId("copy-link").addEventListener("click", ({ target }) => copy(location.href, target));
  addEventListener("input", ({ target }) => (sliding = target.type === "range" ? target : null), true);
  const release = ({ target }) => target === sliding && ((sliding = null), draw());
  for (const name of ["change", "pointerup", "pointercancel", "touchend", "keyup", "focusout"]) addEventListener(name, release, true);
  isDark.addEventListener("change", draw);
  addEventListener("resize", () => sliding || draw());
  addEventListener("hashchange", () => (readAddress(), update()));
  addEventListener("keydown", ({ key }) => key === "Escape" && update({ row: null, column: null, place: null }));
}

/** Reads the weights, which follow in the document, once the page is on the screen. */
function readWeights() {
  models.forEach((shown, i) => {
    shown.model.parameters = readParameters(shown.data.shapes, byId(`weights-${i}`).textContent);
    shown.isReady = true;
  });
  update();
}

readAddress();
listen();
update();
addEventListener("DOMContentLoaded", () => requestAnimationFrame(() => setTimeout(readWeights)));
