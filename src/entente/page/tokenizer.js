"use strict";
/* SentencePiece's BPE and unigram models (Kudo & Richardson 2018), and the words that pieces belong to: data/tokenizer.py and
attention/alignment.py. Positions in a text count characters (code points), as in Python. */

const PAD = 0, UNK = 1, BOS = 2, EOS = 3, SPECIAL = 4; // ids; below SPECIAL they are no text
const UNKNOWN_PENALTY = 10; // of the unigram model, for a character without a piece
const REPLACEMENT = "\ufffd"; // for bytes that are not UTF-8

class Tokenizer {
  /** pieces: strings by id. scores: float32 numbers by id. type: bpe or unigram. plain: whether the text is encoded as people type
   * it. patterns: regular expressions as in Python, of what `clean` and `encode` replace. */
  constructor({ pieces, scores, type, plain }, patterns) {
    Object.assign(this, { pieces, scores, plain, patterns });
    this.firstByte = pieces.indexOf("<0x00>");
    const normal = pieces.map((piece, id) => [piece, id]).filter(([, id]) => id >= this.firstByte + 256);
    this.tags = pieces.slice(SPECIAL, this.firstByte); // of extra texts, such as <bt>, which are always one piece
    this.ids = new Map([...normal, ...this.tags.map((tag, i) => [tag, SPECIAL + i])]);
    this.longest = Math.max(...normal.map(([piece]) => [...piece].length));
    this.unknownScore = Math.fround(Math.min(...normal.map(([, id]) => scores[id])) - UNKNOWN_PENALTY);
    this.split = type === "bpe" ? this.merge : this.viterbi;
  }

  /** Returns the ids of a text, without BOS and EOS. Characters without a piece become the bytes of their UTF-8 form. */
  encode(text) {
    if (this.plain) text = text.replace(this.patterns.apostrophes, "'").replace(this.patterns.spacesBeforeMarks, "");
    if (!text) return [];
    const parts = this.tags.length ? ` ${text}`.split(new RegExp(`(${this.tags.join("|")})`)) : [` ${text}`];
    const symbols = parts.flatMap((part) => (this.tags.includes(part) ? [part] : [...part]));
    const pieces = this.split(symbols.map((symbol) => (symbol === " " ? "\u2581" : symbol)));
    return pieces.flatMap((piece) => this.ids.get(piece) ?? [...new TextEncoder().encode(piece)].map((byte) => this.firstByte + byte));
  }

  /** Joins the pair of neighbours with the best piece, the first of equals, until no pair is a piece. */
  merge(symbols) {
    const score = (i) => this.scores[this.ids.get(symbols[i] + symbols[i + 1])] ?? -Infinity;
    const scores = symbols.map((_, i) => (i + 1 < symbols.length ? score(i) : -Infinity)); // of symbol i with the next
    for (;;) {
      let best = 0;
      for (let i = 1; i < scores.length; i++) if (scores[i] > scores[best]) best = i;
      if (scores[best] === -Infinity) return symbols;
      symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
      scores.splice(best, 1);
      for (const i of [best - 1, best]) if (i >= 0) scores[i] = i + 1 < symbols.length ? score(i) : -Infinity;
    }
  }

  /** Returns the pieces with the largest sum of scores, in float32 as SentencePiece adds them. */
  viterbi(symbols) {
    const best = symbols.map(() => null); // the best way to end before symbol i + 1: its score, and where its last piece begins
    const add = (begin, end, score) => {
      const total = Math.fround((begin ? best[begin - 1].total : 0) + score);
      if (!best[end - 1] || total > best[end - 1].total) best[end - 1] = { total, begin };
    };
    for (let begin = 0; begin < symbols.length; begin++) {
      let piece = "", hasSingle = false;
      for (let end = begin + 1; end <= Math.min(begin + this.longest, symbols.length); end++) {
        const id = this.ids.get((piece += symbols[end - 1]));
        if (id === undefined) continue;
        add(begin, end, this.scores[id]);
        hasSingle ||= end === begin + 1;
      }
      if (!hasSingle) add(begin, begin + 1, this.unknownScore);
    }
    const pieces = [];
    for (let end = symbols.length; end > 0; end = best[end - 1].begin) pieces.unshift(symbols.slice(best[end - 1].begin, end).join(""));
    return pieces;
  }

  /** Returns the text of the pieces, and the span [start, end) of each in it. A character of several bytes belongs to the piece of
   * its last one, and special ids have empty spans. */
  spans(ids) {
    const isText = [...ids.keys()].filter((i) => ids[i] >= SPECIAL), characters = ids.map(() => 0); // in each piece
    let text = "";
    for (let k = 0; k < isText.length; ) {
      const bytes = this.bytes(isText.slice(k, k + 4).map((i) => ids[i])), piece = this.pieces[ids[isText[k]]];
      const n = bytes.length ? characterLength(bytes) : 1;
      const surface = bytes.length ? decodeBytes(bytes.slice(0, n)) : piece.slice(!text && piece.startsWith("\u2581"));
      text += surface.replaceAll("\u2581", " ");
      k += n;
      characters[isText[k - 1]] = [...surface].length;
    }
    let end = 0;
    return [text, characters.map((n) => [end, (end += n)])];
  }

  /** Returns the bytes that the first pieces stand for, up to a piece that is no byte. */
  bytes(ids) {
    const values = ids.map((id) => id - this.firstByte), end = values.findIndex((value) => value < 0 || value > 255);
    return end < 0 ? values : values.slice(0, end);
  }

  /** Returns the text of the pieces as one line. */
  decode(ids) {
    return this.spans(ids)[0].replace(this.patterns.separators, " ");
  }

  /** Returns the pieces as labels: U+2581 marks the start of a word. */
  labels(ids) {
    return ids.map((id) => this.pieces[id]);
  }
}

/** Returns the number of bytes of the first character, or 1 if they are not UTF-8. */
function characterLength(bytes) {
  const [first] = bytes, length = first < 0x80 ? 1 : first >> 5 === 6 ? 2 : first >> 4 === 14 ? 3 : first >> 3 === 30 ? 4 : 1;
  return bytes.length >= length && decodeBytes(bytes.slice(0, length)) !== REPLACEMENT ? length : 1;
}

function decodeBytes(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(bytes));
  } catch {
    return REPLACEMENT;
  }
}

/** Returns the patterns of a page, Python's regular expressions, of which some are only parts. */
function compile({ unspaced, character, ...whole }) {
  const compiled = Object.entries(whole).map(([name, pattern]) => [name, new RegExp(pattern, "gu")]);
  return { unspaced, character, ...Object.fromEntries(compiled) };
}

const WHITE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // Python's white space
const EDGES = new RegExp(`^[${WHITE}]+|[${WHITE}]+$`, "g");

/** Cleans a line as all text is cleaned before it is tokenized (data/text.py). */
function clean(line, { invisible, spaces }) {
  return line.replace(invisible, "").replace(spaces, " ").normalize("NFC").replace(EDGES, "");
}

/* ---- words ---- */

const ELISION = "(?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)['’](?=[\\p{L}\\p{N}_])";

/** Returns the spans of the words of a text. unspaced: the scripts without spaces, where each character is a word. */
function wordSpans(text, { unspaced, character }) {
  const letters = `[[\\p{L}\\p{N}_]--[${unspaced}]]+`;
  const word = new RegExp(`(?<![\\p{L}\\p{N}_])${ELISION}|${character}|${letters}(?:['’\\-]${letters})*|[^\\p{L}\\p{N}_${WHITE}]`, "giv");
  const place = (index) => [...text.slice(0, index)].length; // in characters
  return [...text.matchAll(word)].map((match) => [place(match.index), place(match.index + match[0].length)]);
}

/** Returns the labels of the words at `spans`, and the share of each piece that belongs to each word (P, W). A piece outside all
 * words joins the next one, or the last. */
function wordsOf(tokenizer, ids, spans, patterns) {
  const [text, places] = tokenizer.spans(ids), characters = [...text];
  spans ??= wordSpans(text, patterns);
  if (places.length && !spans.length) spans = [[0, characters.length]];
  const shares = places.map(([begin, end]) => {
    const letters = spans.map(([start, stop]) => Math.max(0, Math.min(end, stop) - Math.max(begin, start)));
    const total = letters.reduce((a, b) => a + b, 0);
    if (total) return letters.map((n) => n / total);
    const next = spans.findIndex(([, stop]) => stop > begin);
    return spans.map((_, w) => Number(w === (next < 0 ? spans.length - 1 : next)));
  });
  return { labels: spans.map(([start, stop]) => characters.slice(start, stop).join("")), shares };
}

/** Adds a start symbol before, or an end symbol after the words. */
function withSymbol({ labels, shares }, label, first) {
  const symbol = [...labels.map(() => 0)], whole = (row, one) => (first ? [one, ...row] : [...row, one]);
  const rows = shares.map((row) => whole(row, 0)), own = whole(symbol, 1);
  return { labels: first ? [label, ...labels] : [...labels, label], shares: first ? [own, ...rows] : [...rows, own] };
}

/** Converts weights (rows, columns) from pieces to words: a word receives the sum, and gives the mean, of its pieces' weights. */
function mergePieces(weights, rows, columns) {
  const totals = rows.labels.map((_, w) => rows.shares.reduce((sum, share) => sum + share[w], 0));
  const received = weights.map((row) => columns.labels.map((_, w) => row.reduce((sum, x, p) => sum + x * columns.shares[p][w], 0)));
  return rows.labels.map((_, w) =>
    columns.labels.map((_, v) => received.reduce((sum, row, p) => sum + rows.shares[p][w] * row[v], 0) / totals[w]),
  );
}

/** Folds case as Python's casefold does: letter by letter, so that the sigma at the end of a word becomes a usual one. */
function casefold(text) {
  return [...text.toLowerCase()].map((letter) => (letter === "ı" ? letter : letter.toUpperCase().toLowerCase())).join("");
}

/** Returns the distinct words of a text as `words` of a checkpoint stores them. */
function distinctWords(text, { unspaced, character }) {
  const word = new RegExp(`(?=[\\p{L}\\p{N}_])${character}|[[\\p{L}\\p{N}_]--[${unspaced}]]+`, "gv");
  return [...new Set(casefold(text).match(word) ?? [])];
}
