"use strict";
/* Interventions, the dictionaries of attention/interventions.py, such as {mute: "cross", layer: 2, head: 1}: here they change
the functions that `Seq2Seq.at` calls. Layers and heads are counted from 1, rows and columns from 0.

Shapes: H heads, T queries, S keys. */

const PLACES = {
  encoder: /^encoder\.\d+\.attn$/,
  decoder: /^decoder\.\d+\.attn$/,
  cross: /^decoder\.\d+\.cross_attn$/,
  alignment: /^alignment$/,
};
const SIDES = { encoder: ["encoder"], decoder: ["decoder"], both: ["encoder", "decoder"] };
const READOUTS = { maxout: ["state", "word", "context"], residual: ["state", "context"], context: ["context"] };
const KINDS = ["mute", "scale", "no_residual", "skip", "weights", "unmask"];

const isCount = (x) => Number.isInteger(x) && x > 0;
const isIndex = (x) => Number.isInteger(x) && x >= 0;
const isKind = (x) => Object.hasOwn(PLACES, x);
const isShare = (x) => x >= 0 && x <= 1;
const areNumbers = (x) => Array.isArray(x) && x.length > 0 && x.every(Number.isFinite);
const MAY_BE = { // the values of each key, as in Python
  mute: (x, { name }) => isKind(x) || (x === "readout" && name === "birnn"), scale: isKind, weights: isKind,
  no_residual: (x) => Object.hasOwn(SIDES, x), skip: (x) => x === "encoder" || x === "decoder", unmask: (x) => typeof x === "string",
  sublayer: (x) => Object.hasOwn(OUTPUTS, x), layer: isCount, head: (x, { n_heads = 1 }) => isCount(x) && x <= n_heads,
  part: (x, { readout }) => Boolean(READOUTS[readout]?.includes(x)), factor: Number.isFinite, row: isIndex, column: isIndex,
  value: isShare, values: (x) => areNumbers(x) && x.every(isShare),
  to: (x, { d_k, d_model, n_heads }) => typeof x === "string" || (areNumbers(x) && x.length === (d_k ?? d_model / n_heads)),
};
const NEEDED = { // besides the kind's own key
  mute: ({ mute, part }) => (mute === "readout") === (part != null),
  scale: ({ factor }) => factor != null,
  weights: ({ row, values, column, value }) => row != null && (values != null || (column != null && value != null)),
};

/** Changes the model until `clear`. Throws an Error for an intervention that it cannot have. */
function intervene(model, interventions) {
  model.clear();
  for (const intervention of interventions) {
    const kind = KINDS.find((name) => name in intervention);
    if (!kind) throw new Error(`${JSON.stringify(intervention)}: give one of ${KINDS.join(", ")}`);
    if (NEEDED[kind] && !NEEDED[kind](intervention)) throw new Error(`${JSON.stringify(intervention)}: a value is missing, or there is one too many`);
    for (const [key, value] of Object.entries(intervention)) {
      if (value !== null && !MAY_BE[key]?.(value, model.settings)) throw new Error(`${key}: ${JSON.stringify(value)}: this model has no such thing`);
    }
    APPLY[kind](model, intervention);
  }
}

const APPLY = {
  mute(model, { mute, part, layer, head, to = "zero" }) {
    if (typeof to === "string" && !["zero", "uniform"].includes(to)) throw new Error(`to: ${to}: give zero, uniform or the numbers`);
    if (mute === "readout") return change(model, `readout.hook_${part}`, (rows) => rows.map((row) => times(row, 0)));
    for (const place of places(model, mute, layer)) {
      if (to === "uniform") {
        changePattern(model, place, head, (row, t, reachable) => {
          const seen = row.map((_, s) => Number(reachable(t, s)));
          return times(seen, 1 / seen.reduce((a, b) => a + b, 0));
        });
      } else {
        if (place === "alignment") throw new Error("this attention has no separate heads; give to=uniform");
        change(model, `${place}.hook_z`, (rows, { attention }) =>
          attention.perHead(rows, (z, h) => (head && h !== head - 1 ? z : to === "zero" ? times(z, 0) : Float64Array.from(to))),
        );
      }
    }
  },

  scale(model, { scale, factor, layer }) {
    for (const place of places(model, scale, layer)) {
      const name = place === "alignment" ? "hook_scores" : "hook_attn_scores";
      change(model, `${place}.${name}`, (heads) => heads.map((rows) => rows.map((row) => times(row, factor))));
    }
  },

  no_residual(model, { no_residual, sublayer, layer }) {
    for (const [block, name] of sublayers(model, no_residual, sublayer, layer)) model.removed.add(`${block.place}.${name}`);
  },

  skip(model, { skip, sublayer, layer }) {
    for (const [block, name] of sublayers(model, skip, sublayer, layer)) {
      change(model, `${block.place}.hook_${OUTPUTS[name]}`, (rows) => rows.map((row) => times(row, 0)));
    }
  },

  weights(model, { weights, layer, head, row, values, column, value }) {
    for (const place of places(model, weights, layer)) {
      changePattern(model, place, head, (old, t, reachable, position) => {
        if (position !== row) return old;
        return values ? wholeRow(old, t, reachable, values) : oneCell(old, t, reachable, column, value);
      });
    }
  },

  unmask(model, { unmask }) {
    if (unmask !== "future") throw new Error("unmask: a sentence alone has no padding; only the future can be unmasked here");
    model.seesFuture = true;
  },
};

/** Returns a row with all its weights set, those beyond `values` to 0, unless it cannot see one of these keys. */
function wholeRow(old, t, reachable, values) {
  const row = old.map((_, s) => values[s] ?? 0);
  const impossible = values.slice(old.length).some(Boolean) || row.some((weight, s) => weight && !reachable(t, s));
  return impossible ? old : row;
}

/** Returns a row with one weight set and the others scaled to the rest, or equal if they had none. */
function oneCell(old, t, reachable, column, value) {
  const others = old.map((_, s) => Number(s !== column && reachable(t, s)));
  if (column >= old.length || !reachable(t, column) || (value !== 1 && !others.some(Boolean))) return old;
  let rest = old.map((weight, s) => weight * others[s]);
  if (rest.reduce((a, b) => a + b, 0) <= 1e-12) rest = others;
  const factor = (1 - value) / Math.max(rest.reduce((a, b) => a + b, 0), 1e-12);
  return rest.map((weight, s) => (s === column ? value : weight * factor));
}

function change(model, name, f) {
  model.changes.set(name, [...(model.changes.get(name) ?? []), f]);
}

/** Replaces rows of weights, of one head (counted from 1) or of all, with f(row, t, reachable, position). */
function changePattern(model, place, head, f) {
  change(model, `${place}.hook_pattern`, (heads, { start, reachable }) =>
    heads.map((rows, h) => (head && h !== head - 1 ? rows : rows.map((row, t) => f(row, t, reachable, start + t)))),
  );
}

/** Returns the places of a kind of attention in the names of activations, one per layer. */
const placesOf = (model, kind) => Object.keys(model.attentions()).filter((place) => PLACES[kind]?.test(place));

/** Returns the same for one layer, or for all. */
function places(model, kind, layer) {
  const all = placesOf(model, kind);
  const some = layer ? all.slice(layer - 1, layer) : all;
  if (!some.length) throw new Error(`${kind}${layer ? `, layer ${layer}` : ""}: this model has no such attention`);
  return some;
}

/** Returns the blocks with the names of their sublayers. */
function sublayers(model, side, sublayer, layer) {
  const blocks = SIDES[side].flatMap((name) => (layer ? [model[name]?.[layer - 1]] : model[name]));
  const pairs = blocks.flatMap((block) => (block?.present ?? []).map((name) => [block, name]));
  const some = pairs.filter(([, name]) => !sublayer || name === sublayer);
  if (!some.length) throw new Error("this model has no such sublayer");
  return some;
}

/** Returns an intervention as the call in Python that writes it. */
function asPython(intervention) {
  const quoted = (value) => (Array.isArray(value) ? `[${value.join(", ")}]` : typeof value === "string" ? `"${value}"` : value);
  const kind = KINDS.find((name) => name in intervention), { [kind]: first, part, factor, row, column, value, values, ...named } = intervention;
  if (part) return `mute_part("${part}")`;
  const places = [kind === "no_residual" && first === "both" ? undefined : first, factor, row, column ?? values, value];
  const settings = Object.entries(named).filter(([, setting]) => setting !== null);
  const keys = settings.map(([key, setting]) => `${key}=${quoted(setting)}`);
  return `${column === undefined ? kind : "cell"}(${[...places.filter((x) => x !== undefined).map(quoted), ...keys].join(", ")})`;
}
