"""Tokenizer: byte-level BPE in tiktoken's rank format, and the chat template (XTML) on top of it.

What is learned is ASCII, for which the published pre-tokenizer's classes \\p{Lu}, \\p{Ll}, \\p{N} are A-Z, a-z, 0-9;
tests/ref/demo_model.py holds the ids against tiktoken with the published pattern. Digits and runs of capitals stay single
bytes, so that reading and spelling go character by character.
"""

import base64
import collections
import functools
import json
import re

PIECES = re.compile(
    r"[^\r\n0-9A-Za-z]?[A-Z]*[a-z]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n0-9A-Za-z]?[A-Z]+[a-z]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[0-9]{1,3}| ?[^\s0-9A-Za-z]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = [
    "[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "<|media_begin|>", "<|media_content|>",
    "<|media_end|>", "<|media_pad|>", "<|kimi_image_placeholder|>", "[UNK]", "[PAD]", "<|reserved_0|>", "<|reserved_1|>",
    "<|reserved_2|>",
]
RAW_JSON = "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
EFFORT = ("`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
          "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with "
          "`thinking_effort={}`.")


def json_notice(schema):
    """What the template says when an answer must follow a schema."""
    canonical = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return ("The system is invoked with `response_format=json_schema`.\n" + RAW_JSON
            + "\nThe JSON data must match the following schema:\n```json\n" + canonical + "\n```")


def learn(texts, size):
    """{bytes: rank}: 256 bytes, then the most frequent pair again and again, up to `size` ranks."""
    counts = collections.Counter(piece for text in texts for piece in PIECES.findall(text))
    words = {w: [bytes([b]) for b in w.encode()] for w in counts}
    ranks = {bytes([i]): i for i in range(256)}
    while len(ranks) < size:
        pairs = collections.Counter()
        for word, parts in words.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += counts[word]
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        joined = best[0] + best[1]
        ranks.setdefault(joined, len(ranks))
        for word, parts in words.items():
            for i in range(len(parts) - 2, -1, -1):
                if i + 1 < len(parts) and (parts[i], parts[i + 1]) == best:
                    parts[i:i + 2] = [joined]
    return ranks


class Tokenizer:
    def __init__(self, ranks):
        self.ranks = ranks
        self.special = {s: len(ranks) + i for i, s in enumerate(SPECIALS)}
        self.size = len(ranks) + len(SPECIALS)
        self.bytes = {i: b for b, i in ranks.items()} | {i: s.encode() for s, i in self.special.items()}
        self.piece = functools.cache(self._piece)

    @classmethod
    def load(cls, path):
        with open(path, "rb") as f:
            lines = [line.split() for line in f if line.strip()]
        return cls({base64.b64decode(text): int(rank) for text, rank in lines})

    def save(self, path):
        with open(path, "wb") as f:
            for text, rank in sorted(self.ranks.items(), key=lambda r: r[1]):
                f.write(base64.b64encode(text) + b" %d\n" % rank)

    def _piece(self, word):
        parts = [bytes([b]) for b in word.encode()]
        while len(parts) > 1:
            rank, i = min((self.ranks.get(x + y, 1 << 30), i) for i, (x, y) in enumerate(zip(parts, parts[1:])))
            if rank == 1 << 30:
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        return [self.ranks[p] for p in parts]

    def encode(self, text):
        assert text.isascii()
        return [i for piece in PIECES.findall(text) for i in self.piece(piece)]

    def decode(self, ids):
        return b"".join(self.bytes[i] for i in ids).decode(errors="replace")

    # Every fragment of the template is encoded by itself, as in the published encoder.

    def open(self, tag, **attributes):
        ids = [self.special["<|open|>"], *self.encode(tag)]
        for key, value in attributes.items():
            for part in (" " + key, '="', value, '"'):
                ids += self.encode(part)
        return [*ids, self.special["<|sep|>"]]

    def close(self, tag):
        return [self.special["<|close|>"], *self.encode(tag), self.special["<|sep|>"]]

    def end_message(self):
        return [*self.close("message"), self.special["<|end_of_msg|>"]]

    def image(self, width, height, rows):
        s = self.special
        return [s["<|media_begin|>"], *self.encode(f"image {width}x{height}"), s["<|media_content|>"],
                *[s["<|media_pad|>"]] * rows, s["<|media_end|>"]]

    def notice(self, kind, text):
        return [*self.open("message", role="system", type=kind), *self.encode(text), *self.end_message()]

    def effort(self, effort):
        return self.notice("thinking-effort", EFFORT.format(effort))

    def wants_json(self, schema):
        return self.notice("response-format", json_notice(schema))
