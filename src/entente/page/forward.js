"use strict";
/* The models of entente/models for one sentence, with the same names and shapes, but without batches, padding and dropout.

A matrix is an array of rows, and a row a Float64Array, so all sums are in double precision. A parameter {data, shape} holds the
page's weights. In a row (H K), the values of the heads lie next to each other, as W_q returns them. `at` is called with every
activation that Python's `hook_names` lists, under the same name: it lets interventions replace the value, and records it.

Shapes: S source length, T target length, P number of earlier target pieces, H heads, D model width, K key width of a head, V
vocabulary; in a BiRNN, E width of embeddings, D state width, M width of the encoder's output, A width of the additive score. */

const LAYER_NORM_EPSILON = 1e-5;
const RMS_NORM_EPSILON = 1e-6;
const DOUBLE_EPSILON = 2 ** -52; // which torch adds to the mean square of a cosine score
const LEARNED_POSITIONS = 512; // all later positions share the last one

/* ---- vectors ---- */

/** Returns W x + b for each row x. Four rows of W at once, because a processor adds their sums in parallel, and for all x, because
 * they then stay in its cache. */
function affine({ data, shape: [height, width] }, bias, rows) {
  const outputs = rows.map(() => new Float64Array(height)), last = height - (height % 4);
  for (let i = 0; i < last; i += 4) {
    const p = i * width, q = p + width, r = q + width, s = r + width;
    for (let t = 0; t < rows.length; t++) {
      const x = rows[t], y = outputs[t];
      let a = 0, b = 0, c = 0, d = 0;
      for (let j = 0; j < width; j++) {
        const value = x[j];
        a += data[p + j] * value;
        b += data[q + j] * value;
        c += data[r + j] * value;
        d += data[s + j] * value;
      }
      y[i] = a;
      y[i + 1] = b;
      y[i + 2] = c;
      y[i + 3] = d;
    }
  }
  rows.forEach((x, t) => {
    const y = outputs[t];
    for (let i = last; i < height; i++) y[i] = dot(data.subarray(i * width, (i + 1) * width), x);
    if (bias) for (let i = 0; i < height; i++) y[i] += bias.data[i];
  });
  return outputs;
}

function dot(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}

/** Returns f(value, index) for each value of x. A loop is much faster than `x.map`. */
function each(x, f) {
  const y = new Float64Array(x.length);
  for (let i = 0; i < y.length; i++) y[i] = f(x[i], i);
  return y;
}

const plus = (x, y) => each(x, (value, i) => value + y[i]);
const times = (x, factor) => each(x, (value) => value * factor);

/** Adds x * factor to y. */
function addTo(y, x, factor) {
  for (let i = 0; i < y.length; i++) y[i] += x[i] * factor;
}

const sigmoid = (value) => 1 / (1 + Math.exp(-value));
const norm = (x) => Math.sqrt(dot(x, x));

function join(...parts) {
  const whole = new Float64Array(parts.reduce((length, part) => length + part.length, 0));
  parts.reduce((start, part) => (whole.set(part, start), start + part.length), 0);
  return whole;
}

/** Returns x divided by its root mean square. */
const divideByRms = (x, epsilon) => times(x, 1 / Math.sqrt(dot(x, x) / x.length + epsilon));

/** Returns exp(x) divided by its sum, so that the result sums to 1. */
const softmax = (x) => each(logSoftmax(x), Math.exp);

function logSoftmax(x) {
  let largest = -Infinity, sum = 0;
  for (const value of x) if (value > largest) largest = value;
  for (const value of x) sum += Math.exp(value - largest);
  const total = largest + Math.log(sum);
  return each(x, (value) => value - total);
}

/** Returns position * 10,000^(-2 i / width) for i < width / 2 (Vaswani et al. 2017, section 3.5). */
const angles = (position, width) =>
  each(new Float64Array(Math.ceil(width / 2)), (_, i) => position * Math.exp((-2 * i * Math.log(10000)) / Math.max(width, 1)));

/** Returns x (K), rotated by its position: components i and i + K / 2 are a point that turns by the i-th angle (Su et al. 2021). */
function rotate(x, position) {
  const half = x.length >> 1, angle = angles(position, 2 * half), y = Float64Array.from(x);
  for (let i = 0; i < half; i++) {
    const cos = Math.cos(angle[i]), sin = Math.sin(angle[i]);
    y[i] = x[i] * cos - x[half + i] * sin;
    y[half + i] = x[i] * sin + x[half + i] * cos;
  }
  return y;
}

/* ---- the interface of both models ---- */

class Seq2Seq {
  /** parameters: {NAME: {data, shape}}, as in the model's state_dict. settings: those of the section `model`. */
  constructor(parameters, settings) {
    this.parameters = parameters;
    this.settings = settings;
    this.clear();
  }

  /** Ends all interventions. */
  clear() {
    this.changes = new Map(); // what replaces activations: functions (value, context) by the names of activations
    this.removed = new Set(); // residual connections that are left out, such as "decoder.0.cross"
    this.seesFuture = false; // whether the mask of the future is lifted
  }

  /** Returns an activation, or what interventions replace it with. context: see MultiHeadAttention.attend. */
  at(name, value, context) {
    for (const change of this.changes.get(name) ?? []) value = change(value, context) ?? value;
    if (this.cache) this.record(name, value);
    return value;
  }

  /** Adds an activation to the cache: rows (T, ...), or rows of heads (H, T, ...). A BiRNN computes some rows one by one. */
  record(name, value) {
    const earlier = this.cache[name];
    if (!earlier) this.cache[name] = value.map((row) => (Array.isArray(row) ? [...row] : row));
    else if (Array.isArray(value[0])) value.forEach((rows, head) => earlier[head].push(...rows));
    else earlier.push(...value);
  }

  linear(path, rows) {
    return affine(this.parameters[`${path}.weight`], this.parameters[`${path}.bias`], rows);
  }

  row(name, index) {
    const { data, shape: [, width] } = this.parameters[name];
    return new Float64Array(data.subarray(index * width, (index + 1) * width));
  }

  /** Reads a sentence pair at once. Returns the log-probabilities (T, V) after each piece of tgt, and all activations. */
  read(src, tgt) {
    this.cache = {};
    try {
      const [hidden] = this.decode(tgt, this.encode(src));
      return { logProbabilities: this.linear("output", hidden).map(logSoftmax), cache: this.cache };
    } finally {
      this.cache = null;
    }
  }
}

/* ---- attention ---- */

class MultiHeadAttention {
  /** place: in the names of activations, such as decoder.0.cross_attn. path: in those of parameters. */
  constructor(model, place, path, rotary) {
    const { d_model, n_heads, d_k, score } = model.settings;
    Object.assign(this, { model, place, path, score, rotary, width: d_k ?? d_model / n_heads });
    this.heads = [...Array(n_heads).keys()];
  }

  of(x, head) {
    return x.subarray(head * this.width, (head + 1) * this.width); // (H K) -> (K)
  }

  /** Applies f(head's vector, head) to each head of rows (T, H K). */
  perHead(rows, f) {
    return rows.map((row, t) => join(...this.heads.map((head) => f(this.of(row, head), head, t))));
  }

  projected(name, rows) {
    const { projections, sliced_heads } = this.model.settings, path = `${this.path}.${name}`;
    const learned = sliced_heads ? (x) => this.sliced(path, x) : (x) => this.model.linear(path, x);
    return this.model.at(`${this.place}.hook_${name[0]}`, projections.includes(name) ? learned(rows) : rows);
  }

  /** Returns a projection (T, H K) of rows (T, D) in which a head reads only its slice. The weight has the shape (H K, D / H). */
  sliced(path, rows) {
    const { [`${path}.weight`]: weight, [`${path}.bias`]: bias } = this.model.parameters, size = weight.shape[1];
    return rows.map((x) => each(bias.data, (start, i) => {
      const head = Math.floor(i / this.width);
      return start + dot(x.subarray(head * size, (head + 1) * size), this.model.row(`${path}.weight`, i));
    }));
  }

  /** Projects source (S, D) to keys and values (S, H K). */
  project(source, start = 0) {
    const key = this.projected("key", source), value = this.projected("value", source);
    return { key: this.rotary ? this.perHead(key, (k, _, s) => rotate(k, start + s)) : key, value };
  }

  /** Returns the output (T, D) for query (T, D), which attends to `kv`. visible: null, or whether row t sees key s. */
  forward(query, kv, visible, start) {
    let q = this.projected("query", query); // (T, H K)
    if (this.rotary) q = this.perHead(q, (x, _, t) => rotate(x, kv.key.length - q.length + t));
    const z = this.attend(q, kv, visible, start);
    const heads = this.model.at(`${this.place}.hook_z`, z, { start, attention: this });
    return this.model.settings.output_projection ? this.model.linear(`${this.path}.out`, heads) : heads;
  }

  /** Returns softmax(scores) V (T, H K). Interventions are told where the queries start, and which keys each of them sees. */
  attend(query, kv, visible, start) {
    const { model, place } = this, context = { start, reachable: this.reachable(visible), attention: this };
    let scores = this.heads.map((head) => this.scores(query, kv.key, head, visible)); // (H, T, S)
    scores = model.at(`${place}.hook_attn_scores`, scores, context);
    const weights = scores.map((rows) => rows.map((row, t) => softmax(this.masked(row, t, visible))));
    const pattern = model.at(`${place}.hook_pattern`, weights, context);
    return query.map((_, t) => join(...this.heads.map((head) => this.mean(pattern[head][t], kv.value, head))));
  }

  /** Returns the mean of a head's values (S, K), with these weights (S). */
  mean(weights, values, head) {
    const total = new Float64Array(this.width);
    for (let s = 0; s < values.length; s++) addTo(total, this.of(values[s], head), weights[s]);
    return total;
  }

  masked(row, t, visible) {
    const hidden = this.model.settings.mask_value ?? -Infinity;
    return visible ? row.map((score, s) => (visible(t, s) ? score : hidden)) : row;
  }

  reachable(visible) {
    const hides = Math.exp(this.model.settings.mask_value ?? -Infinity) < 1e-38; // else a hidden key gets some weight too
    return visible && hides ? visible : () => true;
  }

  /** Returns the factor of the scores of row t: 1 / sqrt(K), or what the settings have in its place. */
  factor(t, nKeys, visible) {
    const { scale } = this.model.settings;
    if (scale !== "n_keys") return scale === "d_k" ? this.width ** -0.5 : 1;
    const seen = visible ? [...Array(nKeys).keys()].filter((s) => visible(t, s)).length : nKeys;
    return seen ** -0.5;
  }

  /** Returns a head's scores (T, S), for query (T, H K) and key (S, H K). */
  scores(query, key, head, visible) {
    const keys = key.map((row) => this.comparedKey(this.of(row, head)));
    return query.map((row, t) => {
      const q = this.comparedQuery(this.of(row, head), head);
      const factor = this.score === "additive" ? 1 : this.factor(t, keys.length, visible);
      return each(keys, (k) => (this.score === "additive" ? this.additive(q, k, head) : dot(q, k) * factor));
    });
  }

  /** Returns the key (K) as the score compares it: for a cosine, divided by its root mean square. */
  comparedKey(k) {
    return this.score === "cosine" ? divideByRms(k, DOUBLE_EPSILON) : k;
  }

  comparedQuery(q, head) {
    const { parameters } = this.model;
    if (this.score === "cosine") return times(divideByRms(q, DOUBLE_EPSILON), parameters[`${this.path}.score.factor`].data[0]);
    if (this.score !== "bilinear") return q;
    const { data, shape: [, width] } = parameters[`${this.path}.score.weight`]; // (H, K, K)
    return q.map((_, j) => q.reduce((sum, value, i) => sum + value * data[(head * width + i) * width + j], 0));
  }

  /** Returns v^T tanh(q + k). */
  additive(q, k, head) {
    const { data } = this.model.parameters[`${this.path}.score.weight`]; // (H, K)
    return q.reduce((sum, value, i) => sum + data[head * this.width + i] * Math.tanh(value + k[i]), 0);
  }
}

/* ---- the Transformer: models/transformer.py ---- */

const OUTPUTS = { self: "attn_out", cross: "cross_attn_out", ff: "mlp_out" }; // what the sublayers return
const SUMS = { self: "resid_mid", cross: "resid_mid_cross" }; // after their residual connections; the last gives resid_post

class Block {
  constructor(model, side, layer) {
    const { positions, sublayers } = model.settings;
    Object.assign(this, { model, settings: model.settings, place: `${side}.${layer}` });
    this.present = ["self", ...(side === "decoder" ? ["cross"] : []), "ff"].filter((name) => sublayers.includes(name));
    this.selfAttention = new MultiHeadAttention(model, `${this.place}.attn`, `${this.place}.self_attention`, positions === "rotary");
    this.crossAttention = new MultiHeadAttention(model, `${this.place}.cross_attn`, `${this.place}.cross_attention`, false);
  }

  before(name, x) {
    return this.model.norm(`${this.place}.before.${name}`, x);
  }

  after(name, x) {
    const last = name === this.present[this.present.length - 1];
    const y = this.settings.norm === "post" ? this.model.layerNorm(`${this.place}.after.${name}`, x) : x;
    return this.model.at(`${this.place}.hook_${last ? "resid_post" : SUMS[name]}`, y);
  }

  keeps(name) {
    return this.settings.residual.includes(name) && !this.model.removed.has(`${this.place}.${name}`);
  }

  residual(name, x, output) {
    const update = this.model.at(`${this.place}.hook_${OUTPUTS[name]}`, output);
    return this.keeps(name) ? x.map((row, t) => plus(row, update[t])) : update;
  }

  /** Applies sublayer f to x (T, D), or returns x if the block lacks this sublayer. */
  sublayer(name, x, f) {
    return this.present.includes(name) ? this.after(name, this.residual(name, x, f(this.before(name, x)))) : x;
  }

  feedForward(x) {
    const inner = this.model.at(`${this.place}.mlp.hook_pre`, this.model.linear(`${this.place}.ff.0`, x));
    const active = this.settings.activation === "swiglu" ? inner.map(swiglu) : inner.map((row) => each(row, (value) => Math.max(value, 0)));
    return this.model.linear(`${this.place}.ff.2`, this.model.at(`${this.place}.mlp.hook_post`, active));
  }

  encode(x) {
    x = this.model.at(`${this.place}.hook_resid_pre`, x);
    x = this.sublayer("self", x, (h) => this.selfAttention.forward(h, this.selfAttention.project(h), null, 0));
    return this.sublayer("ff", x, (h) => this.feedForward(h));
  }

  /** Returns the output (T, D) for new pieces x (T, D), and `past` (P, H K), extended by their keys and values. */
  decode(x, past, memory, visible) {
    const start = past.key.length;
    x = this.model.at(`${this.place}.hook_resid_pre`, x);
    const h = this.before("self", x), own = this.selfAttention.project(h, start);
    const extended = { key: [...past.key, ...own.key], value: [...past.value, ...own.value] }; // (P + T, H K)
    x = this.after("self", this.residual("self", x, this.selfAttention.forward(h, extended, visible, start)));
    x = this.sublayer("cross", x, (h) => this.crossAttention.forward(h, memory, null, start));
    return [this.sublayer("ff", x, (h) => this.feedForward(h)), extended];
  }
}

/** Returns the first half of x (2 F) times the SiLU of the second half (Shazeer 2020). */
function swiglu(x) {
  const half = x.length / 2;
  return each(x.subarray(0, half), (linear, i) => linear * x[half + i] * sigmoid(x[half + i]));
}

class Transformer extends Seq2Seq {
  constructor(parameters, settings) {
    super(parameters, settings);
    const blocks = (side) => Array.from({ length: settings.n_layers }, (_, i) => new Block(this, side, i));
    const embeddingFactor = settings.embedding_scale === "d_model" ? Math.sqrt(settings.d_model) : 1;
    Object.assign(this, { encoder: blocks("encoder"), decoder: blocks("decoder"), embeddingFactor });
  }

  /** Returns the attention layers by their places in the names of activations. */
  attentions() {
    const layers = [];
    for (const block of [...this.encoder, ...this.decoder]) {
      layers.push(block.selfAttention);
      if (block.present.includes("cross")) layers.push(block.crossAttention);
    }
    return Object.fromEntries(layers.map((layer) => [layer.place, layer]));
  }

  layerNorm(path, rows) {
    const { data: gain } = this.parameters[`${path}.weight`], { data: bias } = this.parameters[`${path}.bias`];
    return rows.map((x) => {
      const mean = x.reduce((a, b) => a + b, 0) / x.length, centred = each(x, (value) => value - mean);
      return each(divideByRms(centred, LAYER_NORM_EPSILON), (value, i) => value * gain[i] + bias[i]);
    });
  }

  /** Returns the norm before a sublayer or after the last block, for `post` and `none` the rows themselves. */
  norm(path, rows) {
    if (this.settings.norm === "pre") return this.layerNorm(path, rows);
    if (this.settings.norm !== "rms") return rows;
    const { data: gain } = this.parameters[`${path}.weight`];
    return rows.map((x) => each(divideByRms(x, RMS_NORM_EPSILON), (value, i) => value * gain[i]));
  }

  /** Returns the embeddings (T, D) of ids, the first of which is at position `start`. */
  embed(side, ids, start) {
    return ids.map((id, t) => {
      const x = times(this.row(`${side}_embedding.weight`, id), this.embeddingFactor);
      const position = this.positionVector(side, start + t);
      return position ? plus(x, position) : x;
    });
  }

  positionVector(side, position) {
    const { positions, d_model } = this.settings;
    if (positions === "learned") {
      return times(this.row(`${side}_position.weight`, Math.min(position, LEARNED_POSITIONS - 1)), this.embeddingFactor);
    }
    if (positions !== "sinusoidal") return null;
    const angle = angles(position, d_model);
    return each(new Float64Array(d_model), (_, i) => (i % 2 ? Math.cos : Math.sin)(angle[i >> 1]));
  }

  /** Returns the state before the first target piece. src: the ids of the source, with the end symbol. */
  encode(src) {
    const x = this.encoder.reduce((x, block) => block.encode(x), this.embed("src", src, 0)); // (S, D)
    const memory = this.norm("encoder_norm", x), none = { key: [], value: [] };
    const project = (block) => (block.present.includes("cross") ? block.crossAttention.project(memory) : none);
    return { written: this.decoder.map(() => none), source: this.decoder.map(project) };
  }

  /** Reads the ids tgt (T). Returns hidden (T, D) and the state after them. */
  decode(tgt, { written, source }) {
    const start = written[0].key.length; // P
    const hides = this.settings.mask_future && !this.seesFuture && tgt.length > 1;
    const visible = hides ? (t, s) => s <= start + t : null;
    const after = [];
    const x = this.decoder.reduce((x, block, i) => {
      const [y, extended] = block.decode(x, written[i], source[i], visible);
      after.push(extended);
      return y;
    }, this.embed("tgt", tgt, start));
    return [this.norm("decoder_norm", x), { written: after, source }];
  }
}

/* ---- the BiRNN: models/birnn.py ---- */

class BiRNN extends Seq2Seq {
  attentions() {
    return this.settings.score === "none" ? {} : { alignment: this };
  }

  /** Returns the next state, [h] of a GRU or [h, c] of an LSTM, for input x and state [h] or [h, c]. ih, hh: names of weights. */
  cell(path, suffix, x, [h, c]) {
    const gates = (kind) => ["weight", "bias"].map((name) => this.parameters[`${path}.${name}_${kind}${suffix}`]);
    const [a] = affine(...gates("ih"), [x]), [b] = affine(...gates("hh"), [h]), width = h.length;
    const part = (values, number) => values.subarray(number * width, (number + 1) * width);
    const gate = (number) => each(part(a, number), (value, i) => sigmoid(value + b[number * width + i]));
    if (this.settings.cell === "lstm") {
      const [input, forget, , output] = [0, 1, 2, 3].map(gate);
      const cell = each(c, (value, i) => forget[i] * value + input[i] * Math.tanh(a[2 * width + i] + b[2 * width + i]));
      return [each(cell, (value, i) => output[i] * Math.tanh(value)), cell];
    }
    const [reset, update] = [0, 1].map(gate);
    const candidate = (i) => Math.tanh(a[2 * width + i] + reset[i] * b[2 * width + i]);
    return [each(h, (value, i) => update[i] * value + (1 - update[i]) * candidate(i))];
  }

  zeros() {
    const zero = new Float64Array(this.settings.d_hidden);
    return this.settings.cell === "lstm" ? [zero, zero] : [zero];
  }

  /** Runs one direction of the encoder on rows (S, E). Returns the states (S, D), in the order of the rows. */
  run(rows, suffix, backwards) {
    const states = [];
    for (const x of backwards ? [...rows].reverse() : rows) {
      states.push(this.cell("encoder", `_l0${suffix}`, x, states[states.length - 1] ?? this.zeros()));
    }
    const hidden = states.map(([h]) => h);
    return backwards ? hidden.reverse() : hidden;
  }

  encode(src) {
    const embedded = src.map((id) => this.row("src_embedding.weight", id));
    const directions = [this.run(embedded, "", false)];
    if (this.settings.bidirectional) directions.push(this.run(embedded, "_reverse", true));
    const last = directions.map((states, i) => states[i ? 0 : states.length - 1]);
    const [projected] = this.linear("first_hidden", [last[last.length - 1]]);
    const hidden = projected.map(Math.tanh);
    const outputs = this.settings.score === "none" ? [join(...last)] : src.map((_, s) => join(...directions.map((d) => d[s])));
    const value = this.at("encoder.hook_state", outputs); // (S, M)
    return { written: [hidden, ...this.zeros().slice(1)], source: { key: this.keys(value), value }, position: 0 };
  }

  /** Returns the keys (S, A) or (S, D) of the encoder's outputs (S, M). */
  keys(source) {
    const { score, d_hidden } = this.settings;
    if (score === "none") return [];
    if (score !== "dot") return this.linear("attention.key", source);
    return source.map((x) => x.subarray(0, d_hidden).map((value, i) => value + (this.settings.bidirectional ? x[d_hidden + i] : 0)));
  }

  /** Returns the context (M) of a query (D), which is s_{i-1}. */
  attend(query, { key, value }, start) {
    if (this.settings.score === "none") return value[0];
    const context = { start, reachable: () => true, attention: this };
    const q = this.settings.score === "additive" ? this.linear("attention.query", [query])[0] : query;
    const scores = this.at("alignment.hook_scores", [[each(key, (k) => this.compare(q, k))]], context);
    const [[weights]] = this.at("alignment.hook_pattern", [[softmax(scores[0][0])]], context);
    const total = new Float64Array(value[0].length);
    value.forEach((row, s) => addTo(total, row, weights[s]));
    return total;
  }

  compare(q, k) {
    if (this.settings.score !== "additive") return dot(q, k);
    const { data } = this.parameters["attention.score.weight"]; // v (A)
    return q.reduce((sum, value, i) => sum + data[i] * Math.tanh(value + k[i]), 0);
  }

  decode(tgt, { written, source, position }) {
    const embedded = tgt.map((id) => this.row("tgt_embedding.weight", id)); // (T, E)
    const states = [], contexts = [];
    let recurrent = written;
    embedded.forEach((y, t) => {
      const context = this.attend(recurrent[0], source, position + t);
      const [hidden, ...rest] = this.cell("cell", "", join(y, context), recurrent);
      recurrent = [...this.at("decoder.hook_state", [hidden]), ...rest];
      states.push(recurrent[0]);
      contexts.push(context);
    });
    return [this.readOut(states, embedded, contexts), { written: recurrent, source, position: position + tgt.length }];
  }

  /** Returns hidden (T, E) of states (T, D), the pieces just read (T, E) and contexts (T, M). */
  readOut(states, embedded, contexts) {
    if (this.settings.readout === "maxout") {
      const parts = [["state", states], ["word", embedded], ["context", contexts]];
      const [state, word, context] = parts.map(([name, rows]) => this.at(`readout.hook_${name}`, rows));
      const input = state.map((row, t) => join(row, word[t], context[t]));
      const pairs = this.at("readout.hook_out", this.linear("readout", input)); // (T, 2 E)
      return pairs.map((row) => each(new Float64Array(row.length / 2), (_, i) => Math.max(row[2 * i], row[2 * i + 1])));
    }
    const keep = this.settings.readout === "residual"; // x + P c, or only P c
    const state = keep ? this.at("readout.hook_state", states) : states;
    const context = this.at("readout.hook_context", this.linear("context", contexts));
    const total = keep ? state.map((row, t) => plus(row, context[t])) : context;
    return this.at("readout.hook_out", this.linear("readout", total));
  }
}

/* ---- a page's model ---- */

/** Returns the values of float16 numbers in little-endian bytes. */
function fromFloat16(bytes) {
  const table = new Float32Array(1 << 16);
  for (let bits = 0; bits < table.length; bits++) {
    const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    table[bits] = sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
  }
  const values = new Float32Array(bytes.length / 2);
  for (let i = 0; i < values.length; i++) values[i] = table[bytes[2 * i] | (bytes[2 * i + 1] << 8)];
  return values;
}

/** Returns the parameters of a page's model. shapes: [names, shape] of each, in the order of the weights; tied ones have several
 * names. */
function readParameters(shapes, base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length), parameters = {};
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const values = fromFloat16(bytes);
  let start = 0;
  for (const [names, shape] of shapes) {
    const size = shape.reduce((a, b) => a * b, 1), parameter = { data: values.subarray(start, start + size), shape };
    names.forEach((name) => (parameters[name] = parameter));
    start += size;
  }
  return parameters;
}
