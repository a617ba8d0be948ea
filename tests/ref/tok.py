"""Writes tests/golden/tok: two rank tables, texts with their ids, texts with their pieces.

The ids come from tiktoken, driven by the vendor's own wrapper (tokenization_kimi.py as llmcompressor ships it:
slices, sub-slices, specials), the pieces from the same pattern in Python's regex module (V1). Two tables: the
demo model's, and one of some 5,600 ranks that is trained on the text below and then disturbed: random
substrings, torn characters and long runs at random ranks, so that merging in rank order, whole pieces that no
merge reaches and ranks that no merge list explains all occur.

    python tests/ref/tok.py DEMO_MODEL_DIR

ids.bin, little endian: u32 cases; each: u8 table (0 demo, 1 mixed), u8 specials, u32 runs {u32 times, u32 len,
bytes}: the text is each run's bytes, repeated, one after the other; u32 ids; u16 of each, or, over 2,000, one
u64: FNV-1a over the little endian u16s. pieces.bin: u32 cases; each: u32 len, text, u32 pieces, u16 bytes of
each."""
import base64
import json
import os
import random
import shutil
import struct
import sys
import unicodedata
from types import SimpleNamespace

os.environ["TIKTOKEN_CACHE_DIR"] = ""  # or a table of an earlier run is read again
import regex
import tiktoken
import tiktoken.load
import tokenizers
from llmcompressor.modeling.kimi_k3.tokenization_kimi import TikTokenTokenizer as Vendor

OUT = "tests/golden/tok"
DEMO_VOCAB, MIXED_SPECIALS = 1000, 40
PIECES = regex.compile(Vendor.pat_str, regex.V1)

SENTENCES = """All human beings are born free and equal in dignity and rights.
They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.
Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience.
Todos los seres humanos nacen libres e iguales en dignidad y derechos.
Все люди рождаются свободными и равными в своем достоинстве и правах.
人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
I'll say we've seen it, they're DON'T and it's what you'd expect; 12345 67 890, 3.14159.
{"name": "value", "list": [1, 2, 3], "nested": {"key": null}}
int main(void)\n{\n    for (int i = 0; i < n; i++) {\n        printf("%d\\n", i);\n    }\n}\n""".split("\n")

# The texts of kimi-k3 4.7.
VECTORS = ["The capital of France is", "The largest planet in our solar system is", "Hello, world!", "Hello\n\nworld  ",
           "I'M we're they'LL 1234567", "你好，世界！漢字", "Привет — café naïve", "🙂🚀👩‍💻",
           "Tabs\tand\r\nlines\u00a0end", "a\u001cb", " \u001c a", "a\u2028b", "ＡＢＣ 한국어 हिन्दी العربية",
           "According to all known laws", "a <|open|> b [BOS] c", "ABC", "ABCd", "AbCd", "a  b"]

SPACES = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\x0b", "\x0c", "\u00a0", "\u1680", "\u2003", "\u2028",
          "\u2029", "\u202f", "\u205f", "\u3000", "\x85", "\x1c", "\x1d", "\x1e", "\x1f", "\u200b", "\u200d", "\ufeff"]
CONTRACTIONS = ["'s", "'S", "'\u017f", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'m", "'ll", "'lL", "'d", "'r", "'l", "'v",
                "''s", "\u2019s", "'"]
ODD = "a B é É ß ǅ ª º ʰ ー 々 〇 〆 中 漢 ㍿ ⺀ あ ア ﾞ 한 א ا ् ि ก ้ Ж ж １ ² ½ Ⅻ ① ٣ ! ? . , - ( < | > 🙂 🚀 ' ’".split() + [
    "👩‍💻", "e\u0301", "\u0301", "\u20dd", "\U00016ff0", "\U00016ff1", "\U00020000", "\u3005", "\u3007", "\u303b", "\u0345"]


def assigned():
    """Code points by category, only those on which the two engines' Unicode versions agree."""
    pools = {}
    for c in range(0x110000):
        if unicodedata.category(chr(c)) not in ("Cs", "Cn"):
            pools.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
    return pools


def random_text(rng, pools):
    out = []
    for _ in range(rng.randint(1, rng.choice([3, 6, 12, 30]))):
        kind = rng.random()
        if kind < .2:
            out.append(rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5]))
        elif kind < .35:
            out.append(rng.choice(CONTRACTIONS))
        elif kind < .65:
            out.append(rng.choice(ODD) * rng.choice([1, 1, 2, 3]))
        elif kind < .75:
            out.append(rng.choice(pools[rng.choice(sorted(pools))]))
        elif kind < .85:
            out.append(rng.choice("abcXYZ019 "))
        else:
            s = rng.choice(SENTENCES)
            at = rng.randrange(len(s) + 1)
            out.append(s[at:at + rng.randint(1, 12)])
    return "".join(out)


ALPHABETS = ["abcdefghijklmnoprstuvwyz", "abcdeéèfgilmnoprstuüöäß", "абвгдежзийклмнопрстуфхц", "αβγδεζηθικλμνξοπρστυω",
             "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمن", "कखगघचछजटडणतथदधनपबभमयरलवािीुे", "กขคงจชซญดตถทนบปพมยรลวสหอ",
             "あいうえおかきくけこさしすせそたちつてと", "アイウエオカキクケコサシスセソー", "的一是不了人我在有他这中大来上国", "가나다라마바사아자차카타파하한글",
             "0123456789", "ABCDEFGHIJKLMNOPRSTUVWXYZ", "=-_*#/(){}<>|.,;:!?"]


def invented(rng):
    """Words of each alphabet, few of them frequent."""
    words = []
    for letters in ALPHABETS:
        syllables = [rng.choice(letters) + rng.choice(letters) for _ in range(40)]
        own = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(150)]
        words += [rng.choice(own[:rng.randint(5, 150)]) for _ in range(600)]
    rng.shuffle(words)
    return [" ".join(words[i:i + 10]) for i in range(0, len(words), 10)]


def mixed_ranks(rng):
    corpus = SENTENCES * 3 + VECTORS + invented(rng)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=4500, min_frequency=2, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(corpus, trainer)
    to_byte = {u: b for b, u in tokenizers_bytes().items()}
    trained = [bytes(to_byte[c] for c in tok) for tok, _ in sorted(t.get_vocab().items(), key=lambda kv: kv[1])]
    extra = [b" " * n for n in (2, 3, 4, 8, 12, 16, 31, 64, 128, 250)] + [b"a" * n for n in (2, 3, 5, 8, 16, 128)]
    extra += [b"\n" * n for n in range(2, 9)] + [b"=" * n for n in (2, 4, 64)] + [b"\x1c" * 2, b"\x1c" * 5]
    data = "\n".join(corpus).encode()
    while len(extra) < 2400:
        at = rng.randrange(len(data))
        extra.append(data[at:at + rng.choice([2, 2, 2, 3, 3, 4, 5, 7, 12])])
    singles = [bytes([b]) for b in range(256)]
    table = [t for t in trained if len(t) > 1]
    for e in extra:
        table.insert(rng.randrange(len(table)), e)
    for s in singles:
        table.insert(rng.randrange(600), s)
    return list(dict.fromkeys(table))


def tokenizers_bytes():
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    return bytes_to_unicode()


def write_mixed(folder, ranks):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/tiktoken.model", "w") as f:
        for i, token in enumerate(ranks):
            f.write(f"{base64.b64encode(token).decode()} {i}\n")
    names = {len(ranks) + 1: "[EOS]", len(ranks) + 2: "<|open|>", len(ranks) + 4: "été", len(ranks) + 9: "<|end|>"}
    with open(f"{folder}/tokenizer_config.json", "w") as f:
        json.dump({"added_tokens_decoder": {str(i): {"content": n, "special": True} for i, n in names.items()}}, f)


def load(folder, specials):
    ranks = tiktoken.load.load_tiktoken_bpe(f"{folder}/tiktoken.model")
    named = json.load(open(f"{folder}/tokenizer_config.json"))["added_tokens_decoder"]
    spelled = {named.get(str(i), {}).get("content", f"<|reserved_token_{i}|>"): i
               for i in range(len(ranks), len(ranks) + specials)}
    model = tiktoken.Encoding("t", pat_str=Vendor.pat_str, mergeable_ranks=ranks, special_tokens=spelled)
    return SimpleNamespace(model=model, spelled=spelled,
                           _split_whitespaces_or_nonwhitespaces=Vendor._split_whitespaces_or_nonwhitespaces)


def ids_of(table, text, specials):
    return Vendor._encode_text_piece(table, text, allow_special_tokens=specials)


LONG = [[(25000, "a")], [(25001, "a")], [(25001, " ")], [(24999, " "), (3, "\x1c"), (1, "x")], [(1, "x"), (25001, "\x1c")],
        [(25001, "é"), (1, " b")], [(133334, "ab ")], [(200000, "x\n")], [(399999, " ab"[:1]), (5, "word ")],
        [(12500, "中"), (12501, "a"), (1, " "), (26000, "!")], [(800, "Alle Menschen sind frei und gleich. ")],
        [(399998, "q "[:1]), (1, "<|open|>"), (1, "tail")], [(40000, "they're ")], [(6000, "🙂🚀")], [(30000, "ab12")]]


def cases(rng, tables, pools):
    for i in range(2):
        for s in SENTENCES + VECTORS:
            for specials in (False, True):
                yield i, specials, [(1, s)]
        for runs in LONG:
            yield i, False, runs
        yield i, True, LONG[11]
        for _ in range(900):
            yield i, False, [(1, random_text(rng, pools))]
        for _ in range(150):
            parts = [rng.choice(sorted(tables[i].spelled)) if rng.random() < .5 else random_text(rng, pools)[:8]
                     for _ in range(rng.randint(1, 6))]
            yield i, True, [(1, "".join(parts))]


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 & (1 << 64) - 1
    return h


def write_ids(rng, tables, pools):
    out, n = [], 0
    for table, specials, runs in cases(rng, tables, pools):
        ids = ids_of(tables[table], "".join(s * times for times, s in runs), specials)
        out.append(struct.pack("<BBI", table, specials, len(runs)))
        for times, s in runs:
            out.append(struct.pack("<II", times, len(s.encode())) + s.encode())
        packed = struct.pack(f"<{len(ids)}H", *ids)
        out.append(struct.pack("<I", len(ids)) + (packed if len(ids) <= 2000 else struct.pack("<Q", fnv(packed))))
        n += 1
    with open(f"{OUT}/ids.bin", "wb") as f:
        f.write(struct.pack("<I", n) + b"".join(out))
    return n


def write_pieces(rng, pools):
    texts = VECTORS + SENTENCES + [random_text(rng, pools) for _ in range(2500)]
    with open(f"{OUT}/pieces.bin", "wb") as f:
        f.write(struct.pack("<I", len(texts)))
        for t in texts:
            lens = [len(m.group().encode()) for m in PIECES.finditer(t)]
            raw = t.encode()
            assert sum(lens) == len(raw)
            f.write(struct.pack("<I", len(raw)) + raw + struct.pack(f"<I{len(lens)}H", len(lens), *lens))


def main():
    rng = random.Random(20260727)
    demo = sys.argv[1]
    os.makedirs(f"{OUT}/demo", exist_ok=True)
    for name in ("tiktoken.model", "tokenizer_config.json"):
        shutil.copyfile(f"{demo}/{name}", f"{OUT}/demo/{name}")
        os.chmod(f"{OUT}/demo/{name}", 0o644)
    ranks = mixed_ranks(rng)
    write_mixed(f"{OUT}/mixed", ranks)
    tables = [load(f"{OUT}/demo", 16), load(f"{OUT}/mixed", MIXED_SPECIALS)]
    pools = assigned()
    print(len(ranks), "ranks,", write_ids(rng, tables, pools), "texts with ids")
    write_pieces(rng, pools)


main()
