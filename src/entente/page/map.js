"use strict";
/* The attention of a model: a grid of all heads, one of them as lines and as a map, and the numbers behind one weight. */

const SHOWN_FROM = 0.05; // smaller weights have no number in the map
const isDark = matchMedia("(prefers-color-scheme: dark)");
const STRONG = { true: 0.62, false: 0.72 }; // weights above have the background's colour, by isDark.matches
const COLUMNS = 32; // components of a vector that are shown
const ROW_HEIGHT = 22; // of the lines, in pixels

function drawAttention(shown) {
  const { kinds, data, results } = shown, { kind } = state;
  byId("attention-of").textContent = models.length > 1 ? `${say("of")} ${data.name}` : "";
  fill(byId("kinds"), kinds.map((name) => button(say(name), name === kind, () => update({ kind: name, layer: 1, head: 1, row: null, column: null }))));
  const isEmpty = !results || !kinds.length;
  for (const id of ["overview", "options", "map", "end", "numbers", "weight"]) byId(id).hidden = isEmpty;
  byId("kind-hint").textContent = kinds.length ? say(hintOf(shown)) : say("noAttention");
  if (isEmpty) return;
  const grid = shown.result.weights[kind];
  state.layer = Math.min(state.layer, grid.length);
  state.head = Math.min(state.head, grid[0].length);
  drawGrid(shown, grid);
  byId("unit-pieces").checked = !state.words;
  byId("unit-words").checked = state.words;
  byId("mass").value = state.mass;
  byId("mass-text").textContent = say("mass", { n: percent(state.mass / 100) });
  byId("map-title").textContent = headLabel(kind, state.layer, state.head);
  const view = headView(shown);
  if (state.row >= view.rows.length || state.column >= view.columns.length) state.row = state.column = null;
  byId("gold-note").hidden = !view.links;
  drawLines(view);
  drawMap(view);
  highlight(state.row);
  drawEnd(shown, view);
  drawNumbers(shown, view);
}

function hintOf({ model }) {
  const seesFuture = !model.settings.mask_future || has({ unmask: "future" });
  return { encoder: "encoderHint", decoder: seesFuture ? "futureSeenHint" : "decoderHint" }[state.kind] ?? "crossHint";
}

const headLabel = (kind, layer, head) =>
  kind === "alignment" ? say(kind) : say("headLabel", { kind: say(kind), layer, head });

/* ---- all heads ---- */

function drawGrid(shown, grid) {
  byId("grid").style.setProperty("--heads", grid[0].length);
  const cells = grid.flatMap((heads, i) => [
    element("span", { class: "name" }, state.kind === "alignment" ? "" : say("layer", { n: i + 1 })),
    heads.map((rows, j) => headCell(shown, rows, i + 1, j + 1)),
  ]);
  fill(byId("grid"), cells.flat());
}

/** Returns a small map that opens its head, with the numbers of the head and a switch that mutes it. */
function headCell({ data, model }, rows, layer, head) {
  const { kind } = state, isAlignment = kind === "alignment", isOpen = layer === state.layer && head === state.head;
  const canvas = element("canvas", { width: rows[0].length, height: rows.length });
  const pen = canvas.getContext("2d"), [r, g, b] = isDark.matches ? [108, 178, 255] : [11, 87, 164];
  rows.forEach((row, t) => row.forEach((weight, s) => {
    pen.fillStyle = `rgba(${r}, ${g}, ${b}, ${weight})`;
    pen.fillRect(s, t, 1, 1);
  }));
  const isPart = (each) => each.mute === kind && (isAlignment || (each.layer === layer && each.head === head));
  const cost = costOf(data.importance, isPart), error = data.errors[layer - 1]?.[head - 1];
  const notes = [
    cost !== null && element("span", { title: costTitle(data.importance) }, say("costs", { n: format(cost, 2, true) })),
    error !== undefined && ["cross", "alignment"].includes(kind) && element("span", { title: say("errorHint") }, say("error", { n: format(error, 3) })),
  ];
  const muting = isAlignment ? { mute: kind, to: "uniform" } : { mute: kind, layer, head }, isMuted = has(muting);
  const label = headLabel(kind, layer, head), open = () => update({ layer, head, column: null });
  return element("div", { class: isMuted ? "head muted" : "head" },
    !isAlignment && element("span", {}, say("head", { n: head })),
    element("button", { class: "open", "aria-pressed": String(isOpen), "aria-label": label, title: label, onclick: open, "data-key": label }, canvas),
    button(isAlignment ? say("uniform") : say(isMuted ? "muted" : "mute"), isMuted, () => toggle(muting), { class: "mute", "aria-label": isAlignment ? null : `${say("mute")} ${label}`, "data-key": `mute ${label}` }),
    notes);
}

/* ---- one head ---- */

/** Returns what is shown of the open head: weights (rows, columns), labels, gold links, and which cells are strong enough. */
function headView(shown) {
  const { result } = shown, { kind, layer, head } = state, { src, tgt } = result;
  const toSource = kind === "cross" || kind === "alignment";
  const labels = {
    source: shown.src.labels(src),
    produced: shown.tgt.labels([...tgt, EOS]),
    read: shown.tgt.labels([BOS, ...tgt]),
  };
  const [rowSide, columnSide] = kind === "encoder" ? ["source", "source"] : ["produced", kind === "decoder" ? "read" : "source"];
  const gold = goldOf(shown, result), [source, target] = [wordsOf(shown.src, src.slice(0, -1), gold?.src, PATTERNS), wordsOf(shown.tgt, tgt, gold?.tgt, PATTERNS)];
  const words = { source: withSymbol(source, "</s>", false), produced: withSymbol(target, "</s>", false), read: withSymbol(target, "<s>", true) };
  const pieces = result.weights[kind][layer - 1][head - 1];
  const view = { pieces, rows: labels[rowSide], columns: labels[columnSide], weights: pieces };
  if (state.words) {
    Object.assign(view, { rows: words[rowSide].labels, columns: words[columnSide].labels });
    view.weights = mergePieces(pieces.map((row) => [...row]), words[rowSide], words[columnSide]);
  }
  if (gold && toSource) {
    const sets = { sure: new Set(gold.sure.map(String)), possible: new Set(gold.possible.map(String)) };
    const belongs = (shares, w) => (state.words ? w : shares[w]?.findIndex((share) => share > 0));
    view.links = (t, s) => {
      const link = `${belongs(source.shares, s)},${belongs(target.shares, t)}`;
      return sets.sure.has(link) ? "sure" : sets.possible.has(link) ? "possible" : "";
    };
  }
  view.strong = view.weights.map(strongest);
  return view;
}

/** Returns the gold links of the sentence, if what is shown is its reference. */
function goldOf(shown, { tgt }) {
  const sentence = storedSentence();
  return sentence?.gold && shown.tgt.decode(tgt) === sentence.reference ? sentence.gold : null;
}

/** Returns which weights of a row are among the strongest, which together have the share `mass` of the row. */
function strongest(row) {
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]), total = row.reduce((a, b) => a + b, 0), shows = row.map(() => false);
  let sum = 0;
  for (const s of order) {
    if (row[s] <= 0 || sum >= (state.mass / 100) * total - 1e-9) break;
    shows[s] = true;
    sum += row[s];
  }
  return shows;
}

const spaced = (label) => label.replaceAll("\u2581", "") || "\u2581";

function drawLines({ rows, columns, weights, strong, links }) {
  const width = Math.min(450, byId("overview").clientWidth), left = width / 3, right = 2 * left;
  const height = ROW_HEIGHT * (Math.max(rows.length, columns.length) + 1), y = (i) => ROW_HEIGHT * (i + 1.5);
  const keep = (t) => () => update({ row: state.row === t ? null : t, column: null });
  const text = (label, x, i, attributes) => element("svg:text", { x, y: y(i) + 4, ...attributes }, spaced(label));
  const heading = (name, x, anchor) => element("svg:text", { x, y: 14, "text-anchor": anchor, opacity: 0.7 }, say(name));
  const lines = weights.flatMap((row, t) => [...row].map((weight, s) => strong[t][s] && element("svg:line", {
    x1: left + 6, y1: y(t), x2: right - 6, y2: y(s), "stroke-width": (0.6 + 4 * weight).toFixed(2), "stroke-opacity": Math.min(1, 0.08 + weight).toFixed(3), "data-row": t,
  })));
  const gold = links ? rows.flatMap((_, t) => columns.map((_, s) => links(t, s) === "sure" && element("svg:line", { class: "goldline", x1: left + 6, y1: y(t) + 3, x2: right - 6, y2: y(s) + 3, "data-row": t }))) : [];
  const marks = { "text-anchor": "end" };
  const svg = element("svg:svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": headLabel(state.kind, state.layer, state.head) },
    heading(state.kind === "encoder" ? "queriesEncoder" : "queries", left, "end"), heading("keys", right, "start"), lines, gold,
    rows.map((label, t) => text(label, left, t, { ...marks, "data-row": t, onclick: keep(t), onmouseenter: () => highlight(t), onmouseleave: () => highlight(state.row) })),
    columns.map((label, s) => text(label, right, s, {})));
  fill(byId("lines"), svg);
}

function drawMap({ rows, columns, weights, strong, links }) {
  const cell = (t, s) => {
    const weight = weights[t][s], shows = strong[t][s], name = `${t},${s}`;
    const attributes = {
      class: [shows && weight > STRONG[isDark.matches] && "strong", links?.(t, s)].filter(Boolean).join(" ") || null,
      style: shows ? `--w: ${weight.toFixed(3)}` : null,
      title: `${spaced(rows[t])} → ${spaced(columns[s])}: ${format(weight, 3)}`,
      tabindex: t === (state.row ?? 0) && s === (state.column ?? 0) ? 0 : -1,
      "data-key": `cell ${name}`, "data-row": t, "data-column": s,
      "aria-selected": String(state.row === t && state.column === s),
    };
    return element("td", attributes, shows && weight >= SHOWN_FROM ? format(weight).replace(/^0/, "") : "");
  };
  const keep = (t) => () => update({ row: state.row === t ? null : t, column: null });
  const head = element("tr", {}, element("th"), columns.map((label) => element("th", { scope: "col" }, spaced(label))));
  const body = rows.map((label, t) => element("tr", { "data-row": t, onmouseenter: () => highlight(t), onmouseleave: () => highlight(state.row) },
    element("th", { scope: "row", onclick: keep(t) }, spaced(label)), columns.map((_, s) => cell(t, s))));
  const table = element("table", { role: "grid", "aria-label": headLabel(state.kind, state.layer, state.head), onclick: ({ target }) => openCell(target), onkeydown: moveInMap },
    element("thead", {}, head), element("tbody", {}, body));
  fill(byId("map"), table);
}

function openCell({ dataset: { row, column } }) {
  if (column !== undefined) update({ row: Number(row), column: Number(column) });
}

/** Moves the focus among the cells of the map with the arrow keys; Enter opens a cell. */
function moveInMap(event) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key], { row, column } = event.target.dataset;
  if (event.key === "Enter") openCell(event.target);
  if (!step) return;
  event.preventDefault();
  byId("map").querySelector(`[data-key="cell ${Number(row) + step[0]},${Number(column) + step[1]}"]`)?.focus();
}

/** Shows the lines of one row only, or those of all. */
function highlight(row) {
  for (const node of document.querySelectorAll("#lines [data-row]")) {
    const isRow = Number(node.dataset.row) === row;
    node.classList.toggle("faint", node.tagName === "line" && row !== null && !isRow);
    node.classList.toggle("kept", node.tagName === "text" && isRow);
  }
  for (const node of document.querySelectorAll("#map tr[data-row]")) node.classList.toggle("kept", Number(node.dataset.row) === row);
}

/** Says how much weight is on </s>, with the norm of its value: a large weight on a small value adds little. */
function drawEnd({ model, result }, { pieces }) {
  const place = placeOf(model), values = result.cache[place === "alignment" ? "encoder.hook_state" : `${place}.hook_v`];
  const hasEnd = state.kind !== "decoder" && pieces[0].length > 1;
  if (!hasEnd) return void (byId("end").textContent = "");
  const norms = values.map((row) => norm(ofHead(model, row))), last = norms.pop();
  const weight = pieces.reduce((sum, row) => sum + row[row.length - 1], 0) / pieces.length;
  const others = norms.reduce((a, b) => a + b, 0) / norms.length;
  byId("end").textContent = say("end", { weight: percent(weight), norm: format(last), others: format(others) });
}

const placeOf = (model) => placesOf(model, state.kind)[state.layer - 1];
const ofHead = (model, row) => (state.kind === "alignment" ? row : model.attentions()[placeOf(model)].of(row, state.head - 1));

/* ---- the numbers behind one weight ---- */

function drawNumbers(shown, { pieces, rows, columns }) {
  const { row, column } = state, { cache } = shown.result;
  if (state.words || row === null || column === null || !pieces[row] || column >= pieces[row].length) {
    fill(byId("numbers"), element("p", { class: "small" }, say("numbersHint")));
    fill(byId("weight"));
    return;
  }
  const steps = state.kind === "alignment" ? recurrentSteps(shown, row, column) : headSteps(shown, row, column);
  const { query, key, products, notes, factor, hidden, value } = steps;
  const place = placeOf(shown.model), names = place === "alignment" ? "alignment.hook_scores" : `${place}.hook_attn_scores`;
  const scores = cache[names][state.head - 1][row], sum = products.reduce((a, b) => a + b, 0), score = sum * factor;
  const seen = scores.map((x, s) => (steps.visible(s) ? x : hidden)), largest = Math.max(...seen);
  const powers = seen.map((x) => Math.exp(x - largest)), total = powers.reduce((a, b) => a + b, 0);
  const weight = pieces[row][column], computed = powers[column] / total, isChanged = (x, y) => Math.abs(x - y) > 1e-9;
  const list = [
    say(steps.additive ? "additive" : "sum", { n: format(sum, 3) }),
    factor !== 1 && say("factor", { factor: steps.root ? `1/√${steps.root}` : format(factor, 4), n: format(score, 3) }),
    isChanged(scores[column], score) && say("changedScore", { n: format(scores[column], 3) }),
    !steps.visible(column) && say("masked", { n: format(hidden, 1) }),
    say("power", { n: precise(powers[column]) }),
    say("share", { sum: precise(total), n: precise(computed) }),
    isChanged(weight, computed) && say("changedWeight", { n: precise(weight) }),
    has({ mute: state.kind, layer: state.layer, head: state.head }) && say("mutedHead"),
    say("norms", { v: format(norm(value)), w: format(weight * norm(value)) }),
  ];
  const table = [["q", query], ["k", key], [say(steps.additive ? "term" : "product"), products], [say("value"), value], [say("weighted"), times(value, weight)]];
  const n = Math.min(COLUMNS, Math.max(products.length, value.length));
  const heading = element("tr", {}, element("th", { scope: "col" }, say("component")), [...Array(n).keys()].map((i) => element("th", { scope: "col" }, String(i + 1))));
  const body = table.map(([label, vector]) => element("tr", {}, element("th", { scope: "row" }, label), [...vector.slice(0, n)].map((x) => element("td", {}, format(x)))));
  const suffix = Math.max(products.length, value.length) > n ? ` (1–${n} / ${Math.max(products.length, value.length)})` : "";
  fill(byId("numbers"),
    element("h3", {}, say("numbers", { row: spaced(rows[row]), column: spaced(columns[column]) }) + suffix),
    element("p", { class: "small" }, say(`from_${state.kind}`, { read: spaced(shown.tgt.labels([BOS, ...shown.result.tgt])[row] ?? "") })),
    notes.map((note) => element("p", { class: "small" }, say(note))),
    element("table", {}, heading, body),
    element("ol", {}, list.filter(Boolean).map((text) => element("li", {}, text))));
  const keys = scores.map((_, s) => steps.visible(s)), canSet = keys[column] && keys.filter(Boolean).length > 1;
  fill(byId("weight"), weightSlider(weight, row, column, canSet));
}

const precise = (value) => written(value && value < 1e-3 ? value.toExponential(1) : value.toPrecision(4));

/** Returns the vectors and the factor behind the score of a head of a Transformer. */
function headSteps({ model, result: { cache } }, row, column) {
  const place = placeOf(model), attention = model.attentions()[place], head = state.head - 1;
  const turned = (name, i) => {
    const x = attention.of(cache[`${place}.hook_${name}`][i], head);
    return attention.rotary ? rotate(x, i) : x;
  };
  const query = attention.comparedQuery(turned("q", row), head), key = attention.comparedKey(turned("k", column));
  const isAdditive = attention.score === "additive", { mask_future: hides, mask_value: hidden } = model.settings;
  const masks = state.kind === "decoder" && hides && !has({ unmask: "future" });
  const visible = (s) => !masks || s <= row, v = isAdditive && model.parameters[`${attention.path}.score.weight`].data;
  return {
    query, key, visible, hidden: hidden ?? -Infinity, additive: isAdditive,
    products: query.map((x, i) => (isAdditive ? v[head * attention.width + i] * Math.tanh(x + key[i]) : x * key[i])),
    factor: isAdditive ? 1 : attention.factor(row, cache[`${place}.hook_k`].length, masks ? (_, s) => visible(s) : null),
    root: model.settings.scale === "d_k" && attention.width,
    value: attention.of(cache[`${place}.hook_v`][column], head),
    notes: [attention.rotary && "rotated", attention.score === "cosine" && "normalised", attention.score === "bilinear" && "bilinear"].filter(Boolean),
  };
}

/** Returns the same for the alignment of a BiRNN, whose query is the state before the step. */
function recurrentSteps({ model, result: { cache, src } }, row, column) {
  const states = cache["decoder.hook_state"], state_ = row ? states[row - 1] : model.encode(src).written[0];
  const isAdditive = model.settings.score === "additive", memory = cache["encoder.hook_state"];
  const query = isAdditive ? model.linear("attention.query", [state_])[0] : state_, [key] = model.keys([memory[column]]);
  const v = isAdditive && model.parameters["attention.score.weight"].data;
  return {
    query, key, visible: () => true, hidden: -Infinity, additive: isAdditive, factor: 1, value: memory[column], notes: [],
    products: query.map((x, i) => (isAdditive ? v[i] * Math.tanh(x + key[i]) : x * key[i])),
  };
}

/** Returns a slider that sets one weight; the others of its row are scaled. */
function weightSlider(weight, row, column, canSet) {
  const place = { weights: state.kind, ...(state.kind === "alignment" ? {} : { layer: state.layer, head: state.head }), row, column };
  const isSame = ({ value, ...each }) => JSON.stringify(each) === JSON.stringify(place);
  const text = element("span", {}, say("setWeight", { n: format(weight) }));
  const oninput = ({ target }) => {
    text.textContent = say("setWeight", { n: format(Number(target.value)) });
    setChanges([...state.changes[state.open].filter((each) => !isSame(each)), { ...place, value: Number(target.value) }]);
  };
  return element("label", { class: "slider" }, element("input", { type: "range", min: 0, max: 1, step: 0.05, value: weight, disabled: !canSet, oninput, "data-key": "weight" }), " ", text);
}
