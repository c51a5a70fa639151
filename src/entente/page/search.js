"use strict";
/* Beam search for one sentence, as in decoding/search.py. Greedy search is a beam of 1.

Shapes: V vocabulary. */

/** Returns the best hypotheses {tokens, score, ended}, best first. forced: the ids with which the translation begins. */
function search(model, src, settings, forced = []) {
  const { beam } = settings, limit = Math.max(lengthLimit(settings, src.length), forced.length ? forced.length + settings.length_offset : 0);
  const penalty = (length) => ((5 + length) / 6) ** settings.length_penalty;
  const finished = [];
  const finish = (tokens, total, step, ended) => {
    finished.push({ tokens, score: total / penalty(step), ended });
    finished.sort((a, b) => b.ended - a.ended || b.score - a.score); // stable: the earlier of two equal ones stays first
    finished.splice(beam);
  };
  const beats = (n, bound) => finished.length >= n && finished[n - 1].score >= bound;
  let live = [{ tokens: [], total: 0, state: model.encode(src), last: BOS }];
  for (let step = 1; ; step++) {
    const only = forced[step - 1];
    const candidates = live.flatMap(({ tokens, total, state, last }, origin) => {
      const [hidden, after] = model.decode([last], state), [logits] = model.linear("output", hidden);
      logits[PAD] = -Infinity;
      const row = logSoftmax(logits);
      const best = only === undefined ? largest(row, 2 * beam) : [only];
      return best.map((token) => ({ tokens, total: total + row[token], state: after, last: token, origin }));
    });
    candidates.sort((a, b) => b.total - a.total || a.origin - b.origin);
    const best = candidates.slice(0, 2 * beam);
    for (const { tokens, total, last } of best.slice(0, beam)) if (last === EOS && total > -Infinity) finish(tokens, total, step, true);
    live = best.filter(({ last }) => last !== EOS).slice(0, beam).map((one) => ({ ...one, tokens: [...one.tokens, one.last] }));
    if (!live.length) break;
    if (step >= limit) {
      for (const { tokens, total } of live) finish(tokens, total, step, false);
      break;
    }
    // Totals never rise, so no live hypothesis can end with a score above `bound`.
    const now = live[0].total / penalty(step), bound = Math.max(now, live[0].total / penalty(limit));
    if (beats(settings.n_best, bound) || beats(beam, now)) break;
  }
  return finished.slice(0, settings.n_best);
}

/** Returns the largest number of pieces of a translation, with the end symbol, for a source of `length` pieces. */
const lengthLimit = ({ length_factor, length_offset }, length) => Math.floor(length * length_factor) + length_offset;

/** Returns the indices of the k largest values, largest first. */
function largest(values, k) {
  const indices = [];
  for (let i = 0; i < values.length; i++) {
    if (indices.length === k && values[i] <= values[indices[k - 1]]) continue;
    let place = indices.length;
    while (place > 0 && values[i] > values[indices[place - 1]]) place--;
    indices.splice(place, 0, i);
    if (indices.length > k) indices.pop();
  }
  return indices;
}
