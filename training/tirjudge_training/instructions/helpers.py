"""The functions that programs of the bundled judge define: each measures one property of a response `r`.

The names are the vocabulary that the judge writes checks with; the sources are the boilerplate that the checks
determine. Each source is one token of the judge's tokenizer, so a program of fifty lines is read and written as fast as
a short one. For the kinds of IFEval (arXiv 2311.07911) the functions have the semantics of its official checker, as far
as the standard library can have them. For IFEval, "don't" is two words, for most people one. So `==` and `<=` of `words`
hold if either count does. A rule such as `---`, or a line that begins in italics, is a bullet for IFEval. Here it is none,
if the text has no other bullets.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_SOURCES = r"""
def either(x, y):
    class Either(int):
        def __eq__(self, n):
            return n in (x, y)
        def __le__(self, n):
            return min(x, y) <= n
        __hash__ = int.__hash__
    return Either(x)

def words(r):
    x = re.split(r"\s+|[—…]|--+|\.\.\.", r)
    return either(len(re.findall(r"\w+", r)), sum(bool(re.search(r"\w", y)) for y in x))

def tokens(r):
    x = r"['’‑-](?=[^\W_])|(?<=\d)[.,:](?=\d)|(?<=\b[A-Za-z])\.(?=[A-Za-z]\b)|[\u0300-\u036f\u0900-\u0963\u0966-\u0eff]"
    return re.findall(rf"[^\W_](?:[^\W_]|{x})*", r)

def unfenced(r):
    return re.sub(r"(?ms)^[ \t]*```.*?^[ \t]*```", "", r)

def split_sentences(r):
    r = re.sub(r"(?m)^([ \t]*(?:#+ |\*\*)?\d\d?)\.(?=\s)", r"\1)", r.strip())
    q = r"[\"'”’)\]*_]*+\s++"
    m = r"[a-z]|Jan|Feb|M[aä]r|Apr|Ma[iy]\b|Jun|Jul|Aug|Sep|O[ck]t|Nov|De[cz]"
    a = r"(?<!This|Then|They|When|With|That|Here|Next)"
    x = r"(?<=[.!?…])(?<!\b(?:Mr|Dr|Ms|St|vs)\.)(?<!\bMrs\.)(?<!\bProf\.)(?<![.!?:] \d\.)"
    x += rf"(?:(?<!\b\w\.)(?<!\d\.)(?<!\.\.)(?<!…)|(?!{q}(?:{m})))"
    x += rf"(?:(?<!\b[A-Z]\.)|(?!{q}(?:[A-Z]\.|[A-Z][a-z]{{3,}}\b{a}))){q}"
    return [y for y in re.split(x, r) if re.search(r"\w", y)]

def sentences(r):
    return len(split_sentences(r))

def split_paragraphs(r):
    return [x for x in re.split(r"\n\s*\n", r) if x.strip()]

def paragraphs(r):
    return len(split_paragraphs(r))

def stars(r):
    x = r.split("***")
    return 0 if any(not y.strip() for y in x[1:-1]) else sum(bool(y.strip()) for y in x)

def split_lines(r):
    return [x.strip() for x in r.splitlines() if x.strip()]

def lines(r):
    return sum(not x.startswith("```") for x in split_lines(r))

def characters(r):
    return len(r.strip())

def rows(r):
    x = [y for y in split_lines(r) if re.search(r"\w|[^\x00-\x7f]", y) and not re.match(r"```|#+ ", y)]
    x = x[1:] if len(x) > 1 and x[0].rstrip("*_ ").endswith(":") else x
    y = [bool(re.fullmatch(r"([*_]{1,3})[^*_]+\1", z)) for z in x]
    return x[1:] if len(x) > 2 and y[0] and sum(y) == 1 else x

def outer(r):
    x = re.findall(r"(?m)^([ \t]*)(?:[-*•+]|\d+[.)])[ \t]+(.*)$", r)
    n = min((len(a.expandtabs(4)) for a, b in x), default=0) + 1
    return [b.strip() for a, b in x if len(a.expandtabs(4)) <= n] or rows(r)

def parts(r):
    x = outer(r)
    if len(x) == 1 and re.search("[,;]", x[0]):
        x = re.split(r"[,;]|(?i:\s(?:and|or|&)\s)", x[0].rpartition(": ")[2])
    return [y for y in (re.sub(r"(?i)^\s*(?:and|or|&)\s+", "", z).strip() for z in x) if y]

def order(r):
    from unicodedata import normalize
    r = re.sub(r"(?m)^.*\n(?=[ \t]*\|[ \t]*:?--)", "", r)
    x = parts(r) if len(parts(r)) > 1 else tokens(r)
    return [re.sub(r"[^\w\s]|_", "", normalize("NFKD", y.lower())).strip() for y in x]

def bullets(r):
    x = re.findall(r"(?m)^[ \t]*(?=\*[^*\n]|[-•])(.*)$", r)
    return len(x) if any(y.strip("-*• \t") and not re.match(r"\*[^\s*][^*]*\*", y) for y in x) else 0

def items(r):
    m = r"(?:[-*•+]|\d+[.)])[ \t]"
    n = rf"(?![ \t]|{m}|```|\(?[A-Za-z][.)][ \t]|[◦○▪–][ \t])"
    x = re.findall(rf"(?m)^[ \t]*{m}(.*(?:\n(?:[ \t\r]*\n)?[ \t]+{n}\S.*)*)", r)
    x = x or re.findall(r"(?m)^(?:#+[ \t]+)?(?:\*\*|__)?\d+[.)](?:\*\*|__)?[ \t]+(.*)$", r)
    return [y.strip() for y in x]

def numbered(r):
    x = r"(?:\d+[.)]|\(\d{1,2}\))(?:\*\*|__)?\s|\d+(?:\ufe0f?\u20e3|、)"
    return len(re.findall(rf"(?m)^[ \t]*(?:#+[ \t]+)?(?:\*\*|__)?(?:{x})", r))

def placeholders(r):
    return sum("[" in y for x in r.split("\n") for y in x.split("]")[:-1])

def highlights(r):
    x = re.findall(r"\*[^\n\*]*\*", r) + re.findall(r"\*\*[^\n\*]*\*\*", r)
    return sum(bool(y.strip("*").strip()) for y in x)

def bold(r):
    r = re.sub(r"(?ms)^[ \t]*```.*?^[ \t]*```|`[^`\n]*`", "`", r)
    r = re.sub(r"(?<![*\w])\*(?![*\s])([^*\n]+)\*(?!\*)", r"\1", r)
    return len(re.findall(r"\*\*[^*\n]+\*\*|(?<![^\W_]|_)__(?![\s_])[^_\n]+__(?!\w)", r))

def headings(r):
    return len(re.findall(r"(?m)^ {0,3}#{1,6}\s", unfenced(r)))

def hashtags(r):
    return len(re.findall(r"(?<![\w#])#(?!\d+\b)\w+", r))

def capitals(r):
    return sum(x.isupper() for x in re.findall(r"\b(?:[^\W\d_]\.){2,}|[\w'-]+", r))

def emojis(r):
    x = "(?![\u2605\u2606\u2610\u2612\u2669-\u266f\u2713\u2715\u2717-\u271c\u2722-\u2727\u2729-\u2732\u2756\u275b-\u2760"
    x += "\u2768-\u2794\u2798-\u27a0\u27a2-\u27af])"
    x += "[\u231a\u231b\u23e9-\u23f3\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55\U0001f300-\U0001faff]"
    x = rf"(?:[^\w\s]\ufe0f|[ℹ™©Ⓜ]\ufe0f|{x})[\ufe0f\U0001f3fb-\U0001f3ff]*"
    return len(re.findall(rf"[\U0001f1e6-\U0001f1ff]{{1,2}}|[\d#*]\ufe0f?\u20e3|{x}(?:\u200d{x})*", r))

def links(r):
    return len(re.findall(r"https?://\S+|www\.\S+", r))

def numbers(r):
    return len(re.findall(r"\d+(?:[.,:]\d+)*", r))

def codeblocks(r):
    return len(re.findall(r"(?m)^[ \t]*```", r)) // 2

def tablerows(r):
    x = [y for y in split_lines(r) if y[0] == y[-1] == "|"]
    rules = sum(set(y) <= set("|-: ") and bool(re.search(r"--|:-|-:|\|-", y)) for y in x)
    return max(0, len(x) - 2 * rules)

def parentheses(r):
    return len(re.findall(r"\([^()]*\)", r))

def punctuation(r):
    x = r"[.,;:!?…¡¿\"“”„«»‹›()\[\]{}–—―‘‚。、，；：！？「」『』《》（）।؟،؛]"
    return len(re.findall(x + r"|(?<=\S)[ \t]+-+(?!\S)|(?<!\w)'(?=[^'\n]+'(?!\w))", r))

def quotes(r):
    x = r"(?<!\w)['‘](?!\d0s|n['’]|t(?:is|was|il)\b|cause\b|em\b)(?=(?:[^'‘’\n]|(?<=\w)['’](?=\w))+['’](?!\w))"
    return len(re.findall(r"[\"“”„«»‹›‚「」『』]", r)) + 2 * len(re.findall(x, r, re.I))

def dashes(r):
    r = re.sub(r"(?m)^[ \t]*\|[-|: \t]+$|^[> \t]*- ", "", r)
    return len(re.findall(r"[–—―]|(?<=[^\s-])[ \t]+-+(?!\S)|(?<=[^\s|:-])--+(?=[\w\s])", r))

def lettered(r):
    return len(re.findall(r"(?m)^[ \t]*(?:[-*•+][ \t]+|#+[ \t]+)?(?:\*\*)?\(?[A-Za-z][.)](?:\*\*)?\s", r))

def columns(r):
    x = [y.replace("\\|", "") for y in split_lines(r)]
    x = [y for y in x if y[0] == y[-1] == "|"] or [y for y in x if "|" in y]
    x = {re.sub(r"^\||\|$", "", y).count("|") + 1 for y in x}
    return x.pop() if table(r) and len(x) == 1 else 0

def json_items(r):
    x = load(r)
    return len(x) if isinstance(x, list) else 0

def roman(r):
    x = r"(?:[-*•+>][ \t]+|#+[ \t]+)?[*_]{0,3}(?:[A-Z]\w+ )?\(?([ivx]+|[IVX]+)"
    x += r"(?:[*_]{0,3}[.):][*_]{0,3}|[*_]{0,3}(?=\s+(?:[–—-]\s|$)))\s"
    x = [y[1].upper() for z in r.split("\n") if (y := re.match(x, z.strip() + " "))]
    return sum(bool(re.fullmatch("X{0,3}(?:IX|IV|V?I{0,3})", y)) for y in x)

def first_line_words(r):
    return len(tokens(next((x for x in split_lines(r) if not x.startswith("```")), "")))

def first_line_characters(r):
    return len(next((x for x in split_lines(r) if not x.startswith("```")), ""))

def first_sentence_words(r):
    t = re.sub(r"(?m)^(?:#{1,6}[ \t].*|\*\*[^*\n]*[^*\n.!?]\*\*:?[ \t\r]*)\n(?=\s*\S)", "\n", r)
    x = [z for y in split_paragraphs(t) for z in split_sentences(y)] or [""]
    return len(tokens(next((y for y in x if re.search("[.!?…]", y)), x[0])))

def last_line_words(r):
    x = [x for x in split_lines(r) if re.search(r"\w", x) and not x.startswith("```")] or [""]
    return len(tokens(re.sub(r"^\d+[.)]\s", "", x[-1])))

def last_sentence_words(r):
    x = re.split(r"\n\s*\n|\n(?=[ \t]*(?:[-*•+>#]|\d+[.)])\s)|(?m:^#.*\n)", r)
    x = [z for y in x for z in split_sentences(re.sub(r"^\s*\d+[.)]\s", "", y))]
    return len(tokens(x[-1])) if x else 0

def italics(r):
    r = re.sub(r"`[^`\n]*`|(?m:^[ \t]*\*[ \t])|\*\*(?!\*)|(?<!\w)__|__(?!\w)", "", unfenced(r))
    x = r"(?<![A-Za-z\d*])\*(?![\s*])[^*\n]+\*(?![A-Za-z\d*])|(?<![\w_])_(?![\s_])[^_\n]+_(?![\w_])|<(?:i|em)>"
    return len(re.findall(x, r))

def blockquotes(r):
    r = unfenced(r)
    x = sum(bool(re.match(r"[ \t]*>[ \t>]*\S", y)) for y in r.splitlines())
    return either(x, min(x, len(re.findall(r"(?m)(?:^[ \t]*>.*\n?)+", r))))

def inline_code(r):
    return len(re.findall(r"(?<!`)`[^`\n]+`(?!`)", unfenced(r)))

def longest_word(r):
    return max([0, *word_letters(r)])

def percents(r):
    x = r"\d\**[ \u00a0\u202f]?\\?[%％]|\w[ -]?(?:percent|per cent|Prozent|por ?cento|por ciento|pour cent)\b"
    return len(re.findall(rf"(?i){x}", r))

def amounts(r):
    n, c = r"(?<![\d.,])\d[\d.,]*+", r"US\$|C\$|A\$|KSh|Rs\.?|[$€£¥₹₩₽₺₴₱₪฿]"
    u = "USD|EUR|GBP|CHF|JPY|CAD|AUD|INR|ZAR|CNY|SEK|NOK|DKK|PLN|HUF|CZK|KES|NZD|SGD|BRL|MXN|(?-i:TRY)"
    k = u + "|kr|zł|Kč|(?-i:Ft)|forints?|dollars?|euros?|pounds?(?! of\\b)|bucks|cents?|yen|yuan|pesos?|reais|shillings?|"
    k += "quid|rupees?|francs?|rand"
    m = r"(?:[ \u00a0-](?:thousand|million|billion|trillion|Millionen|Milliarden))?[ \u00a0-]?"
    return len(re.findall(rf"(?i)(?:{c}|\b(?:{u})\b)[ \u00a0]?{n}|{n}{m}(?:[¢$€£¥₹₩₽₺₴₱₪฿元円]|(?:{k})\b)", r))

def clock_times(r):
    n = r"(?<![\d:.])(?:[01]?\d|2[0-4])"
    x = rf"{n}(?:(?:[:.][0-5]\d)?[ \u00a0\u202f]?(?:[ap]\.?m\b|Uhr\b)|[:h][0-5]\d(?!\d)|h\b)"
    return len(re.findall(rf"(?i){x}|\b\w+ o['’]clock|\b(?:noon|midnight|half past \w+|quarter (?:past|to) \w+)\b", r))

def separated(r, w):
    w = w.strip() or w
    if w != "|" and r.strip().startswith(w + " "):
        return 0
    w = f" {w} " if f" {w} " in r else w
    return sum(bool(re.search(r"[^\s*_`.\"”|]", x)) for x in r.split(w))

def own_lines(r, w):
    w = w.strip().lower()
    return sum(x == w or w[:1].isalnum() and x.strip("#*_>\"“”` ") == w for x in split_lines(r.lower()))

def count(r, w):
    return r.lower().count(w.lower())

def letter(r, x):
    return r.lower().count(x.lower())

def sections(r, w):
    return len(re.findall(re.escape(w) + r"\s?\d+", r, re.I))

def beginning(r, x):
    return sum(y.lower().startswith(x.lower().strip(" -…")) for y in tokens(r))

def ending(r, x):
    return sum(y.lower().endswith(x.lower().strip(" -…")) for y in tokens(r))

def has(r, *ws):
    r = r.lower().replace("’", "'")
    return all(w.lower().replace("’", "'") in r for w in ws)

def has_any(r, *ws):
    r = r.lower().replace("’", "'")
    return any(w.lower().replace("’", "'") in r for w in ws)

def lacks(r, *ws):
    def p(w):
        a, b = (w[i:][:1].isalnum() and w[i:][:1] < "\u0e00" for i in (0, -1))
        return r"(?<!\w)" * a + re.escape(w) + r"(?!\w)" * b
    return not any(re.search(p(w.replace("’", "'")), r.replace("’", "'"), re.I) for w in ws)

def starts(r, *ps):
    r, ps = r.strip().lower().replace("’", "'"), [p.strip().lower().replace("’", "'") for p in ps]
    x = r, re.sub(r"\*\*|__", "", r).lstrip("#*_>\"“„«'‘` ")
    ps = [re.escape(p) + r"(?![^\W\d_])" * (len(p) > 1 and p[-1].isalpha() and p[-1] < "\u0e00") for p in ps]
    return any(re.match(p, y) for p in ps for y in x)

def ends(r, *ps):
    x = r.strip().strip('"').strip().lower()
    ps = [p.strip().lower() for p in ps]
    return x.endswith(tuple(ps)) or x.rstrip(".!?").endswith(tuple(p.rstrip(".!?") or p for p in ps))

def first_word(r, w):
    x = tokens(r)
    return bool(x) and x[0].lower() == w.lower()

def last_word(r, w):
    x = tokens(r)
    return bool(x) and x[-1].lower() == w.lower()

def paragraph_first(r, n, *ws):
    x = [tokens(y.lower()) for y in split_paragraphs(r)[n - 1 :]] if n > 0 else []
    y = [tokens(w.lower()) for w in ws]
    return len(x) >= len(y) and all(a[: len(b)] == b for a, b in zip(x, y))

def line_first(r, n, *ws):
    x = [y for y in split_lines(r.lower()) if not y.startswith("```")]
    y = x[n - (n > 0)] if 0 < abs(n) <= len(x) else ""
    p = "|".join(re.escape(w.strip().lower()) + r"(?!\w)" * w.strip()[-1:].isalnum() for w in ws)
    return any(re.match(p, z) for z in (y, re.sub(r"\*\*|__", "", y).lstrip("#*_>\"'“‘`- ")))

def last_line(r, *ws):
    return line_first(r, -1, *ws)

def own_line(r, *ws):
    x = {y.lower().replace("’", "'") for y in split_lines(r)}
    ws = [w.strip().lower().replace("’", "'") for w in ws]
    m = "#*_>:.\"'`-[] " + "".join({*re.sub(r"[\w\x00-\x7f]", "", r)})
    y = {v for z in x for v in (z.strip(m), re.sub(r"^\d+[.)]\W+", "", z.strip(m)))}
    return all(w in x or w[:1].isalnum() and w.strip(m) in y for w in ws)

def in_order(r, *ws):
    for p in (r"(?m)^(?:[^\w\n]|\d)*", r"(?<![A-Za-z0-9])", ""):
        x = [y.end() for w in ws if (y := re.search(p + re.escape(w), r, re.I))]
        if len(x) == len(ws):
            return x == sorted(set(x))
    return False

def first_sentence(r, w):
    r, w, x = r.replace("’", "'"), w.replace("’", "'"), r"(?i:(?:hi|hello|hey|dear|hallo|hola|bonjour)\b.{0,40}!\W*)"
    x = [y for y in split_sentences(r) if not re.fullmatch(x, y)][:1] + split_sentences(r)[:1]
    p = r"(?<![A-Za-z0-9])" * w[:1].isalnum() + re.escape(w) + r"(?:(?:e?s)?(?![A-Za-z0-9]))" * w[-1:].isalnum()
    return any(re.search(p, y, re.I) for y in x)

def last_sentence(r, w):
    x = re.split(r"\n\s*\n|\n(?=[ \t]*(?:[-*•+>#]|\d+[.)])\s)|(?m:^#.*\n)", r)
    x = [(i, z) for i, y in enumerate(x) for z in split_sentences(y)]
    n = max((i for i, (_, y) in enumerate(x) if re.search(r"[.!?…。！？][\"'”’)*_` ]*$", y.rstrip())), default=len(x) - 1)
    n = max((i for i, (k, _) in enumerate(x) if k == x[n][0]), default=0)
    return any(w.lower() in y.lower() for _, y in x[n:])

def line_start(r, p):
    q = p.strip()
    x = [y for y in split_lines(r) if y.startswith(q) or not re.match(r"```|#+ ", y)]
    x = x[1:] if len(x) > 1 and x[0].rstrip("*_ ").endswith(":") else x
    b = r"(?![^\W\d_])" * (q[-1:].isalpha() and q[-1:] < "\u0e00" and len(q) > 1)
    p = re.escape(q) + (r"(?!\S)" if p[-1:] == " " else b)
    return bool(x) and all(re.match(p, z, re.I) for z in [y if y.startswith(q) else y.lstrip("*_\"'“‘") for y in x])

def line_end(r, p):
    x = [y for y in split_lines(r) if not re.match(r"```|#+ ", y)]
    x = x[1:] if len(x) > 1 and x[0].rstrip("*_ ").endswith(":") else x
    m, p = "*_`\"'”’» ", p.strip().lower()
    m += ".,;:!?…" * p[-1:].isalnum()
    return bool(x) and all(y.endswith(p) or y.rstrip(m).endswith(p) for y in map(str.lower, x))

def bullet_start(r, w):
    x = re.findall(r"(?m)^[ \t]*((?:[-*•+]|\d+[.)])[ \t]+)(.*)$", r.replace("’", "'"))
    w = w.replace("’", "'")
    b = r"(?![^\W\d_])" * (len(w) > 1 and w[-1:].isalpha() and w[-1:] < "\u0e00")
    p = re.compile(r"(?:\[[ x]\] )?" + re.escape(w) + b, re.I)
    return bool(x) and all(p.match(z.strip().strip("*_\"'“‘")) or (y + z).startswith(w) for y, z in x)

def bullet_end(r, *ws):
    r, ws = r.lower().replace("…", "..."), tuple(w.lower().replace("…", "...").rstrip("\ufe0f") for w in ws)
    m = r"[ \t]*(?:[-*•+]|\d+[.)])[ \t]"
    r = r if ":" in ws else re.sub(rf"(?m)^{m}.*:[*_ ]*\n(?=[ \t]{m})", "", r)
    x = [y.rstrip("*_\"'”’`\ufe0f ") for y in items(r)]
    p = tuple(w.rstrip(".!?") or w for w in ws)
    x = [(y, y.rstrip(")"), z, z.rstrip(")")) for y in x for z in [y.rstrip(".!?*_\"'”’` ")]]
    return bool(x) and all(a.endswith(ws) or b.endswith(ws) or c.endswith(p) or d.endswith(p) for a, b, c, d in x)

def said(r, *ws):
    r, ws = r.replace("’", "'"), [w.replace("’", "'") for w in ws]
    a, b = r"(?<![A-Za-z0-9])", r"(?:e?s)?(?![A-Za-z0-9])"
    return all(re.search(a * w[:1].isalnum() + re.escape(w) + b * w[-1:].isalnum(), r, re.I) for w in ws)

def entries(r):
    m = r"(?:[-*•+]|\d+[.)])[ \t]"
    return re.findall(rf"(?m)^[ \t]*{m}(.*(?:\n(?:[ \t\r]*\n)?[ \t]+(?![ \t\r\n]|{m}).*)*)", r)

def bullet_has(r, *ws):
    return bool(entries(r)) and all(said(x, *ws) for x in entries(r))

def line_has(r, *ws):
    return bool(rows(r)) and all(said(y, *ws) for y in rows(r))

def sentence_has(r, *ws):
    # SENTENCE_PARTS
    x = [z for y in x for z in split_sentences(y)]
    return bool(x) and all(said(y, *ws) for y in x)

def sentence_start(r, *ws):
    p = "|".join(re.escape(w) + r"(?![^\W_])" * (len(w) > 1) for w in ws)
    p = re.compile(rf"[\W\d_]*(?:{p})", re.I)
    r = re.sub(r"(?m)^(?:#+ .*|[ \t]*\*\*[^*\n.!?]+\*\*:?[ \t]*|[^\n]{1,80}:[ \t]*)\n", "\n", r)
    x = [z for y in re.split(r"\n\s*\n|\n(?=[ \t]*(?:[-*•+>]|\d+[.)])[ \t])", r) for z in split_sentences(y)]
    return bool(x) and all(p.match(y) for y in x)

def body(r):
    t = r"(?m)^(?: {0,3}#{1,6}[ \t].*|[ \t]*\*\*[^*\n]+\*\*:?[ \t]*|[ \t]*[\[(][^\[\]()\n]+[\])]:?[ \t]*)$(?=\n[ \t]*\S)"
    x = [(y, y.strip()) for y in split_paragraphs(re.sub(t, "", r))]
    x = [y for y, z in x if "\n" in z or not re.match(r"#+ |\*{1,3}[^*]*\*{1,3}:?$", z) and re.search(r"\w", z)]
    m = r"[ \t]*(?:[-*•+]|\d+[.)])[ \t]|[ \t]*\||[ \t]{2,}"
    return [y for y in x if not all(re.match(m, z) for z in y.splitlines() if z.strip())] or x

def paragraph_has(r, *ws):
    # PARAGRAPHS_OF_TEXT
    return bool(x) and all(said(y, *ws) for y in x)

def first_paragraph(r, *ws):
    p = re.compile(r"[*_]*subject\b.*|.{1,60}(?<![.!?…])[*_]*|(?:hi|hello|hey|dear)\b.{0,40}!", re.I)
    x = body(r)
    n = next((i for i, y in enumerate(x[:-1]) if not p.fullmatch(y.strip())), 0)
    return any(said(y, *ws) for y in x[: n + 1])

def last_paragraph(r, *ws):
    x = [y for y in body(r) if not re.fullmatch(r"(?:\s*#\w+)+\s*", y)] or body(r)
    n = 1 + (len(x) > 1 and bool(re.match(r".{1,40},[ \t\r]*\n.{1,60}(?:\n.{1,60})?$", x[-1].strip())))
    n = 3 if len(x) > 2 and re.fullmatch(r".{1,40},", x[-2].strip()) and len(x[-1].strip()) < 80 else n
    return any(said(y, *ws) for y in x[-n:])

def paragraph_start(r, *ws):
    return any(x and all(line_first(y, 1, *ws) for y in x) for x in (body(r), split_paragraphs(re.sub(r"(?m)^#.*\n", "", r))))

def paragraph_end(r, *ws):
    ws = [(w, tokens(w)) for w in (v.lower().replace("…", "...").strip() for v in ws)]
    x = [(y, tokens(y)) for y in (z.lower().replace("…", "...").rstrip("\"'”’)*_` \r\n") for z in body(r))]
    return bool(x) and all(any(z[-len(t):] == t if t else y.endswith(w) for w, t in ws) for y, z in x)

def sentence_end(r, *ws):
    r = re.sub("[\u2600-\u27bf\u2b50\u2b55\ufe0f\u200d\U0001f1e6-\U0001faff]", " ", r.replace("…", "..."))
    x = [z for y in body(r) for z in re.split(r"\n(?=[ \t]*(?:[-*•+>#]|\d+[.)])[ \t])", y)]
    x = [z.rstrip("\"'”’)*_` \r\n") for y in x for z in split_sentences(y)]
    x = [y for y in x if len(y) > 40 or not y.endswith(",")]
    return bool(x) and all(y.endswith(tuple(w.replace("…", "...") for w in ws)) for y in x)

def word_start(r, x):
    y = tokens(re.sub(r"(?m)^[ \t]*\d+[.)][ \t]", "", r))
    return bool(y) and all(z[0].lower() == x.lower() for z in y)

def not_sentence_start(r, *ws):
    r, ws = r.replace("’", "'"), [w.replace("’", "'") for w in ws]
    p = "|".join(re.escape(w) + r"(?![^\W_])" * w[-1:].isalnum() for w in ws)
    p = re.compile(rf"[\W\d_]*(?:{p})", re.I)
    x = re.split(r"\n\s*\n|\n(?=[ \t]*(?:[-*•+>#]|\d+[.)]))|(?m:^#.*\n)|(?m:^[ \t]*\*\*[^*\n]*[^*\n.!?]\*\*:?[ \t]*\n)", r)
    return not any(p.match(z) for y in x for z in split_sentences(y))

def alternate(r, *ws):
    x = [(y, re.sub(r"^(?:[•+→]|\d+[.)])\s+", "", y)) for y in rows(r)]
    return len(x) >= len(ws) and all(any(line_first(z, 1, ws[i % len(ws)]) for z in y) for i, y in enumerate(x))

def exact(r, *ws):
    a, b = r"(?<![A-Za-z0-9])", r"(?:e?s|E?S)?(?![A-Za-z0-9])"
    return all(re.search(a * w[:1].isalnum() + re.escape(w) + b * w[-1:].isalnum(), r) for w in ws)

def header(r, *ws):
    x = split_lines(r.lower()) or [""]
    i = [k - 1 for k, y in enumerate(x) if k and "--" in y and "|" in y and set(y) <= set("|-: ")]
    i += [k + 1 for k, y in enumerate(x[:-1]) if y.startswith("```")] + [k for k, y in enumerate(x) if "|" in y]
    x = x[[*i, 0][0]].strip("|")
    y = x.split(next((z for z in "|\t;," if z in x), ","))
    return [z.strip(" \t*_`\"'") for z in y] == [w.strip(" \t*_`\"'").lower() for w in ws]

def bullet_mark(r, w):
    w = w.strip().rstrip("\ufe0f")
    x = re.findall(rf"(?m)^[ \t]*({re.escape(w)}|->|[-*•+–~✓✔✗→➤▶▪◦●○‣»☐☑★]|\d+[.)])\ufe0f?[ \t]", r)
    return bool(x) and all(y == w for y in x)

def marked(r, w):
    w = w.strip().rstrip("\ufe0f")
    return len(re.findall(rf"(?m)^[ \t]*(?:\*\*)?{re.escape(w)}\ufe0f?(?:\*\*)?[ \t]", r))

def tags(r, *ws):
    ws = [w.strip("</> ") for w in ws]
    x = [(w, re.search(rf"<{re.escape(w)}(?:\s[^<>]*)?/?>", r)) for w in ws]
    return all(y and (y[0].endswith("/>") or f"</{w}>" in r[y.end() :]) for w, y in x)

def date_format(r, w):
    k = {"dd": r"(?:0[1-9]|[12]\d|3[01])", "mm": r"(?:0[1-9]|1[0-2])", "d": r"\d\d?", "m": r"\d\d?"}
    k |= {"mmm": r"[^\W\d]{3}", "mmmm": r"[^\W\d]{3,9}"}
    p = re.sub(r"([^a-z])", r"\\\1", w.strip(), flags=re.I)
    z = k, {**k, "dd": "", "mm": ""}
    p, n = (re.sub(r"(?i)y+|d+|m+", lambda m: y.get(m[0].lower()) or rf"\d{{{len(m[0])}}}", p) for y in z)
    s = "." + re.escape(re.sub(r"[\w\s]", "", w))
    x = re.findall(rf"(?<!\d)(?<!\d[{s}]){n}(?![{s}]?\d)", r)
    y = [bool(re.fullmatch(p, z)) for z in x]
    return all(y) and bool(y) if re.search(r"\W", w.strip()) and {*"dmy"} <= {*w.lower()} else any(y)

def listed(r):
    x = r"^(?:[→–—»▪◦●]|\[[ xX]\]|\(?(?:[A-Za-z]|[IVXivx]+)[.)])\s+"
    y = [z for z in split_lines(r) if not re.match(r"```|#+ ", z)]
    y = y[1:] if len(y) > 1 and y[0].rstrip("*_ ").endswith(":") else y
    return [re.sub(x, "", z) for z in items(r) or y or split_lines(r)]

def items_bold(r):
    x = re.findall(r"(?m)^([ \t]*)((?:[-*•+]|(?:#+[ \t]+)?(?:\*\*|__)?\d+[.)])[ \t].*)$", r)
    n = min((len(a.expandtabs(4)) for a, b in x), default=0) + 1
    x = [b for a, b in x if len(a.expandtabs(4)) <= n]
    x = [y for y in x if re.match(r"[#*_ \t]*\d", y)] or x
    b = r"\*\*[^*\n]+\*\*|__[^_\n]+__|<(?:b|strong)>"
    return any(y and all(re.search(b, z) for z in y) for y in (x, listed(r)))

def items_emoji(r):
    return bool(listed(r)) and all(starts_emoji(x) for x in listed(r))

def items_upper(r):
    x = [re.search(r"[^\W\d_][^\W_]*(?:-[^\W_]+)*", y) for y in listed(r)]
    return bool(x) and all(y and y[0].isupper() for y in x)

def starts_emoji(r):
    x = r.strip().lstrip("#*_>\"“ ")
    y = "[\u231a\u231b\u23e9-\u23f3\u25fd\u25fe\u2b1b\u2b1c\U0001f004-\U0001f265]|.\ufe0f"
    return bool(re.match(y, x)) or emojis(x[:1]) > 0

def ends_emoji(r):
    x = r.strip().rstrip("*_\"”`\r\n ")
    y = x.rstrip("\ufe0e\ufe0f\u200d\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
    return x.endswith("\U000e007f") or starts_emoji(x[len(y) - 1 :])

def has_bold(r, *ws):
    x = re.findall(r"\*\*([^*\n]+)\*\*|__([^_\n]+)__|<(?:b|strong)>([^<\n]+)", r)
    return said("\n".join(map("".join, x)), *ws)

def not_bullet_end(r, *ws):
    x = [y.rstrip("\"'”’*_` \r\n") for y in entries(r) or listed(r)]
    return bool(x) and not any(y.endswith(ws) for y in x)

def items_unique(r):
    x = [y.lower().strip("*_`\"' .,;") for y in parts(re.sub(r"(?m)^[ \t]*\[[ xX]\]", "", r))]
    return len(x) > 1 and len(x) == len(set(x))

def nested(r):
    r = unfenced(r)
    x = re.findall(r"(?m)^([ \t]*)(?:[-*•+–◦○▪]|\d+(?:\.\d+)+|\(?(?:\d+|[A-Za-z]|[ivx]+)[.)])[ \t]", r)
    x = [len(y.expandtabs(4)) for y in x]
    n = min(x, default=0) + 1
    return sum(y > n for y in x) + len(re.findall(r"(?m)^\d+[.)][ \t].*\n(?=[-*•+][ \t])", r))

def blank_between(r):
    x = [y for y in r.strip().splitlines() if not y.startswith("```")]
    y = [(len(m[1].expandtabs(4)), i) for i, z in enumerate(x) if (m := re.match(r"([ \t]*)(?:[-*•+]|\d+[.)])[ \t]", z))]
    n = min(y, default=(0,))[0] + 1
    y = [i for k, i in y if k <= n]
    y = y if len(y) > 1 else [i for i, z in enumerate(x) if z.strip()]
    return len(y) > 1 and not any(x[i - 1].strip() and not re.search(r"^#|:[*_ ]*$", x[i - 1]) for i in y[1:])

def bullets_alike(r):
    x = [(tokens(y) or [""])[0].lower() for y in items(r)]
    return len(x) > 1 and len(set(x)) == 1

def options(r, *ws):
    m = "\"'“”‘’`*_.! \r\n"
    x = re.sub(r"```\w*\n|```", "", r).strip(m).lower()
    ws = [w.strip(m).lower() for w in ws]
    return x in ws or re.sub(r"^\(?(\w)\)$", r"\1", x) in ws

def unique_words(r):
    x = [y.lower() for y in tokens(r)]
    return len(x) == len(set(x))

def alphabetical(r):
    return order(r) == sorted(order(r))

def reverse_alphabetical(r):
    return len(order(r)) > 1 and order(r) == sorted(order(r), reverse=True)

def abecedarian(r):
    for x in (parts(r), [z for y in rows(r) for z in split_sentences(y)], tokens(r)):
        y = "".join(re.sub(r"[\W\d_]+", "", z)[:1].lower() for z in x)
        if len(x) > 1 and y == ("abcdefghijklmnopqrstuvwxyz" * (1 + len(x) // 26))[: len(x)]:
            return True
    return False

def in_numbers(r):
    r = re.sub(r"(?m)^.*\n(?=[ \t]*\|[ \t]*:?--)", "", r.replace("−", "-"))
    if re.fullmatch(r"\d{1,3}(?:([ ,])\d{1,3}){2,}", r.strip()):
        return [float(y) for y in re.findall(r"\d+", r)]
    r = re.sub(r"(?<=\d)(?:\.\.+|…)(?=\d)", " ... ", r)
    r = re.sub(r"\b[A-Z][a-z]{2,8}\.? \d\d?(?:st|nd|rd|th)?,? (\d{4})\b|\b\d\d?\.? [A-Z][a-z]{2,8} (\d{4})\b", r"\1\2", r)
    r = re.sub(r"(?<!\d)(\d\d)\.(\d\d)\.(\d{4})(?!\d)", r"\3\2\1", r)
    r = re.sub(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)", r"\1\2\3", r)
    t = r"(?i)(?<![\d:.])(\d\d?)(?::(\d\d))?\s?([ap])\.?m\b"
    r = re.sub(t, lambda m: f"{int(m[1]) % 12 + 12 * (m[3] in 'pP')}.{m[2] or '00'}", r)
    r = digits(re.sub(r"(?<!\d)(\d\d?):(\d\d)(?!\d)", r"\1.\2", r))
    k = {"t": 3, "k": 3, "m": 6, "b": 9, "tr": 12}
    t = r"(?<![\d.])(\d{1,9}(?:\.\d++)?)[ \u00a0]?([Kk]|M|B|bn|(?i:thousand|million|billion|trillion))\b"
    r = re.sub(t, lambda m: f"{float(m[1]) * 10 ** k['tr' if m[2][:2].lower() == 'tr' else m[2][0].lower()]:f}", r)
    n = [int(x) for x in re.findall(r"(?m)^[ \t]*(?:#+[ \t]+)?(?:\*\*)?(\d{1,9})[.)](?!\d)", r)]
    if len(n) > 1 and all(a > b for a, b in zip(n, n[1:])):
        return n
    x = [(y, re.findall(r"(?<![\w.])-?\d++(?:\.\d++)?", y)) for y in outer(r) if not y.endswith(":")]
    x = [y for y in x if y[1]]
    if len(x) == 1:
        z = re.findall(r"(?<![\w.])-?\d++(?:\.\d++)?", re.split(r":\s|\bare\b", x[0][0], maxsplit=1)[-1])
        x = [(x[0][0], z)] if len(z) > 1 else x
    if all(y[0] == "|" and len(z) > 1 for y, z in x) and [float(z[0]) for _, z in x] == list(range(1, len(x) + 1)):
        x = [(y, z[1:]) for y, z in x]
    v = [int(z[0]) for y, z in x if len(z) > 1 and re.search(rf"\({z[0]}\)", y) and re.fullmatch(r"(?:1\d|20)\d\d", z[0])]
    if len(v) == len(x) > 1 and v not in (sorted(v), sorted(v, reverse=True)):
        x = [(y, z[1:]) for y, z in x]
    return [float(v) for y, z in x for v in (z if len(x) == 1 or not re.search(r"[^\W\d]|\|", y) else z[:1])]

def ascending(r):
    x = in_numbers(r)
    return len(x) > 1 and x == sorted(x)

def descending(r):
    x = in_numbers(r)
    return len(x) > 1 and x == sorted(x, reverse=True)

def grows(r, n):
    x = rows(r) if len(rows(r)) > 1 else [z for y in rows(r) for z in split_sentences(y)]
    x = [[len(tokens(y)) * n for y in x], [len(y) * n for y in x]]
    return any(len(y) > 1 and all(a < b for a, b in zip(y, y[1:])) for y in x)

def growing(r):
    return grows(r, 1)

def shrinking(r):
    return grows(r, -1)

def equal_lines(r):
    x = [len(tokens(y)) for y in rows(r)]
    return len(x) > 1 and len(set(x)) == 1

def starts_differ(r):
    r = re.sub(r"(?m)^[ \t]*\d+[.)][ \t]|^#.*$", "- ", r)
    x = re.split(r"\n\s*\n|\n(?=[ \t]*[-*•+>])", r)
    x = [tokens(z) for y in x for z in split_sentences(y)]
    x = [y[0].lower() for y in x if y]
    return len(x) > 1 and len(x) == len(set(x))

def sentence_lines(r):
    y, low = [x for x in split_lines(r) if re.search(r"\w", x)], r.islower()
    one = all(low or z.lstrip("\"'“”*_")[:1].islower() for x in y for z in split_sentences(x)[1:])
    one = one and not any(re.search(r"[.!?…]\s+\S", x) for x in y) if low else one
    return len(y) > 1 and one and (low or not any(a[-1].isalpha() and b[0].islower() for a, b in zip(y, y[1:])))

def same_ends(r):
    x = tokens(r.lower())
    return len(x) > 1 and x[0] == x[-1]

def enclosed(r, a, b):
    x, a, b = r.strip().lower(), a.strip().lower(), b.strip().lower()
    x = x if "`" in a else re.sub(r"^```\w*\n|\n```$", "", x).strip()
    if a[:1].isalnum():
        y = x.strip("#*_\"“”` \n")
        return len(y) > len(a + b) and starts(y, a) and ends(y, b)
    y = x[len(a) : len(x) - len(b)]
    one = a == b or b not in y or -1 < y.find(a) < y.find(b)
    return len(x) > len(a + b) and x.startswith(a) and x.endswith(b) and one

def case_style(r, w):
    x = {"snake_case": r"[a-z\d]+(?:_[a-z\d]+)*", "kebab-case": r"[a-z\d]+(?:-[a-z\d]+)*"}
    x |= {"camelCase": r"[a-z][a-z\d]*(?:[A-Z][a-z\d]*)*", "PascalCase": r"(?:[A-Z][a-z\d]*)+"}
    x |= {"SCREAMING_SNAKE_CASE": r"[A-Z][A-Z\d]*(?:_[A-Z\d]+)*"}
    y = re.sub(r"(?m)^[ \t]*(?:[-*•+]|\d+[.)]|```\w*)(?:[ \t]+|$)", "", r)
    y = [z for z in (z.strip(" \t\r#`*\"'“”.:()/") for z in re.split(r"[\n,;/]", y)) if z]
    return bool(y) and all(re.fullmatch(x[w], re.sub(r"\.[a-z\d]{1,4}$", "", z)) for z in y)

def first_person(r):
    x = "War|Type|Phase|Part|Chapter|Article|Section|Stage|Class|Volume|Act|Level|Elizabeth|Charles|James|Henry|Napoleon|"
    x += "Francis|Nicholas|Peter|Wilhelm|William|George|Edward|Catherine"
    y = "am|have|had|will|would|could|can|went|felt|saw|found|knew|think|love|want|got|made|met|did"
    r = re.sub(rf"\b(?:{x}) I(?![\w'’]| (?:{y})\b)|`[^`\n]*`", "", unfenced(r))
    i = r"(?<![\w.])(?<!\w['’])"
    i += ("[Ii]" if r.islower() else "I") + r"(?![\w.)/-])"
    m = r"\b(?:[Mm](?:e|y|yself)|[Ww]e|[Uu]s|[Oo]ur(?:s|selves)?|(?<!coal )(?<!gold )[Mm]ine)\b"
    m += r"|\b(?:ME|MY|WE|OURS?)\b" * r.isupper()
    return len(re.findall(f"{i}|{m}", r))

def second_person(r):
    r = re.sub(r"(?i)\[(?:insert )?your? [^\[\]\n]*\](?!\()", "", r)
    return len(re.findall(r"(?i)\byou(?:r|rs|rself|rselves)?\b", r))

def acrostic(r, w):
    w, y = re.sub(r"\W", "", w).lower(), r.strip().splitlines()
    x = [(y, re.sub(r"[\W\d_]+", "", y).lower()) for y in split_lines(r)]
    x = [z for z in x if z[1]]
    t = re.compile(r"#+ .*|(\*{1,3}|_)[^*]+\1|[^:]*:[*_]*")
    n = next((i for i, z in enumerate(x) if z[1] != w and not t.fullmatch(z[0])), 2)
    b = "".join(z[1][0] for z in x)
    b = [b[i:] for i in range(min(n, 2) + 1)]
    return w in b or len(y) > 2 and not y[-2].strip() and w in [z[:-1] for z in b]

def sentence_words(r):
    # SENTENCE_PARTS
    return [len(tokens(z)) for y in x for z in split_sentences(re.sub(r"^\s*\d+[.)]\s", "", y))] or [0]

def paragraph_sentences(r):
    t = r"[ \t]*(?:#{1,6}[ \t].*|\*\*[^*\n]*[^*\n.!]\*\*:?|[^\n]{1,40},(?:[ \t\r]*\n.{1,60}(?<![.!?…]))?)[ \t\r]*"
    r = re.sub(r"(?m)^(?:#{1,6}[ \t].*|\*\*[^*\n]*[^*\n.!]\*\*:?[ \t\r]*)\n(?=[ \t]*\S)", "", r)
    x = [y for y in split_paragraphs(r) if not re.fullmatch(t, y.strip())] or split_paragraphs(r)
    return [sentences(y) for y in x if sentences(y)] or [0]

def word_letters(r):
    return [n for y in tokens(r) if (n := sum(map(str.isalpha, y)))] or [0]

def line_words(r):
    x = [y for y in split_lines(r) if re.search(r"\w", y) and not re.match(r"```|#+ ", y)]
    x = x[1:] if len(x) > 1 and x[0].rstrip("*_ ").endswith(":") else x
    y = [bool(re.fullmatch(r"([*_]{1,3})[^*_]+\1", z)) for z in x]
    x = x[1:] if len(x) > 2 and y[0] and sum(y) == 1 else x
    return [len(tokens(re.sub(r"^\d+[.)]\s", "", z))) for z in x] or [0]

def line_characters(r):
    return [len(x) for x in split_lines(r)]

def bullet_words(r):
    return [len(tokens(x)) for x in items(r)]

def paragraph_words(r):
    # PARAGRAPHS_OF_TEXT
    return [len(tokens(y)) for y in x] or [0]

def paragraph_lines(r):
    x = r"(?:verse|chorus|bridge|stanza|refrain|strophe)\b[ \t]*(?:\d+|[ivx]+|one|two|three|four|final)?[:.*_ \t\r]*\n"
    r = re.sub(f"(?im)^{x}", "\n", r)
    x = body(r)
    c = r"(?i).*\b(?:hope|enjoy|let me know|would you like|feel free)\b.*"
    x = x[:-1] if len(x) > 2 and re.fullmatch(c, x[-1].strip()) else x
    x = [len(split_lines(y)) for y in x]
    return (x[1:] if len(x) > 2 and x[0] == 1 < min(x[1:]) else x) or [0]

def bullet_sentences(r):
    x = [[z for z in y.split("\n") if not re.match(r"\s*\*\*[^*]*\*\*:?\s*$", z)] for y in entries(r) or split_lines(r)]
    x = [sum(sentences(z) for z in y) for y in x]
    return [y for y in x if y] or [0]

def heading_words(r):
    n = r"(?:\*\*)?(?:\d+(?:[.)]|(?:\.\d+)+[.)]?)[ \t]+)?"
    x = re.findall(rf"(?m)^ {{0,3}}#{{1,6}}[ \t]+{n}(.*)", unfenced(r))
    x = x or re.findall(r"(?m)^[ \t]*\*\*(?:\d+[.)][ \t]+)?([^*\n]*[^*\n.!])\*\*:?[ \t\r]*$", r)
    return [len(tokens(y)) for y in x] or [0]

def list_items(r):
    x, sub, top = [0], [], None
    for y in r.splitlines():
        m = re.match(r"([ \t]*)(?:[-*•+]|(\d+[.)]|\(?[A-Za-z][.)]))[ \t]", y)
        if m and x[-1] and (len(m[1].expandtabs()) > len(top[1].expandtabs()) + 1 or top[2] and not m[2]):
            sub[-1] += 1
        elif m:
            top = top if x[-1] else m
            x[-1] += 1
            sub.append(0)
        elif y[:1].strip() and x[-1] and not y.startswith("```"):
            x.append(0)
    x = x[: None if x[-1] or len(x) == 1 else -1]
    return sub if sub and all(sub) and len(x) in (1, len(sub)) else x

def upper(r):
    return r.isupper()

def lower(r):
    return r.islower()

def capitalized(r):
    x = re.search(r"[^\W\d_]", re.sub(r"^\[[xX]\]", "", r))
    return x is None or x[0].isupper()

def title_case(r):
    w = r"(?i)\b(?:every|each|all)\W+(?!main|major|important)(?:\w+\W+){0,3}words?\b|\bword.{1,30}capital|\blower"
    m = "" if re.search(w, prompt) else "a an the and but or nor for so yet of in on at to by from with as into over via per"
    return all(x[0].isupper() or not x[0].isalpha() or i and x in m.split() for i, x in enumerate(tokens(r)))

def load(r):
    x = re.sub(r"^\s*```(?:json)?|```\s*$", "", r.strip(), flags=re.I)
    try:
        return json.loads(x)
    except (ValueError, RecursionError):
        return None

def is_json(r):
    return load(r) is not None

def json_keys(r, *ws):
    x = load(r)
    x = x if isinstance(x, list) and re.search(r"(?i)\b(?:arrays?|lists?|each|every|all|objects)\b", prompt) else [x]
    return bool(x) and all(isinstance(y, dict) and all(w in y for w in ws) for y in x)

def json_value(r, k, v):
    x = load(r) if isinstance(load(r), list) else [load(r)]
    x = [y[k] if isinstance(y, dict) and k in y else [] for y in x]
    return bool(x) and all(y == v if isinstance(y, str) else json.dumps(y) in (v, json.dumps(load(v))) for y in x)

def is_xml(r):
    from xml.etree import ElementTree
    x = re.sub(r"^```\w*\s|```$", "", r.strip()).strip()
    try:
        return "<!ENTITY" not in x and ElementTree.fromstring(x) is not None
    except (ElementTree.ParseError, ValueError):
        return False

def json_array(r):
    return isinstance(load(r), list)

def csv(r, n):
    from csv import reader
    x = re.findall(r"(?ms)^```\w*[ \t\r]*\n(.*?)(?:^```|\Z)", r)
    x = (x[0] if len(x) == 1 else r).strip().splitlines()
    d = next((z for z in ";\t" if x and x[0].count(z) == n - 1 > 0), ",")
    return bool(x) and all(len(y) == n for y in reader(x, delimiter=d, skipinitialspace=d != "\t"))

def table(r):
    return any(set(x) <= set("|-: \t") and "-" in x and "|" in x for x in split_lines(r))

def code(r):
    return codeblocks(r) > 0

def code_only(r):
    return bool(re.fullmatch(r"(?s)```(?:(?!```).)*```", r.strip()))

def title(r):
    x = [y[y.find("<<") + 2 : y.rfind(">>")] for y in r.split("\n") if "<<" in y and y.find("<<") + 2 < y.rfind(">>")]
    return any(y.strip("<> \t") for y in x)

def postscript(r, p):
    return bool(re.search(r"\s?".join(map(re.escape, p.replace(" ", ""))), r, re.I))

def quoted(r):
    x = r.strip()
    return len(x) > 1 and x[0] in '"“' and x[-1] in '"”'

def two_answers(r):
    x = r.split("******")
    x = [y.strip() for i, y in enumerate(x) if y.strip() or 0 < i < len(x) - 1]
    return len(x) == 2 and all(x) and x[0] != x[1]

def repeats(r, prompt):
    x, p = " ".join(r.lower().split()), prompt.lower()
    for i in [0, *[y.end() for y in re.finditer(r"[.!?:]\s+|\n\s*", p)][:99]]:
        y = " ".join(p[i:].split())[:4000]
        n = next((k for k, (a, b) in enumerate(zip(x, y)) if a != b), min(len(x), len(y)))
        if n > 9 and (n == len(y) or re.search(r"[.!?:][\"'”]?\s?$", y[:n])):
            return True
    return False

def ends_question(r):
    x = re.sub("[\u2600-\u27bf\u2b50\u2b55\ufe0f\u200d\U0001f1e6-\U0001faff]", " ", r).split()
    while x and re.fullmatch(r"#\w+|[^\w.!?…。！？؟]+", x[-1]):
        x.pop()
    return bool(x) and x[-1].rstrip("\"'”’»」*_`)!").endswith(("?", "？", "؟"))

def ends_period(r):
    return r.strip().rstrip("\"'“”‘’»」)]*_` \u00a0\r\n").endswith((".", "。", "।"))

def number_only(r):
    x = re.sub(r"^```\w*\s|```$", "", r.strip()).strip(" \r\n*_`$€£¥₹%.~≈")
    x = re.sub(r"^\\[(\[]\s*|\s*\\[)\]]$|^\\boxed\{|\}$", "", x)
    n = r"(?:\d{1,3}(?:[ .'\u00a0\u202f]\d{3})+|\d+(?:(?:,\d{2,3})*,\d{3})?)(?:[.,]\d+)?"
    return bool(re.fullmatch(rf"[-−+]?[$€£¥₹]?{n}(?:e[-+]?\d+|/\d+)?", x, re.I))

def ascii_only(r):
    return r.isascii()

def has_email(r):
    return bool(re.search(r"\w@[\w-]+\.\w", r))

def iso_date(r):
    return bool(re.search(r"(?<!\d)\d{4}[-‑](?:0[1-9]|1[0-2])[-‑](?:0[1-9]|[12]\d|3[01])(?!\d)", r))

def contractions(r):
    x = re.findall(r"(?i)(?:n['’]t|\w['’](?:re|ve|ll|m|d))\b|(?<!\w)['’]t(?:is|was)\b|\by['’]all\b", r)
    s = "it|that|this|he|she|what|there|here|who|how|where|when|why|let"
    return len(x) + len(re.findall(rf"(?i)\b(?:{s})['’]s\b", r))

def digits(r):
    r = re.sub(r"(?<![\d.,])(\d{1,3})((?:\.\d{3})++)(?=,\d{1,2}(?!\d))", lambda m: m[0].replace(".", ""), r)
    r = re.sub(r"(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}+(?![\d.]*\d)", lambda m: m[0].replace(".", ""), r)
    r = re.sub(r"(?<=\d)[, '’\u00a0\u202f](?=\d{3}(?!\d))", "", r)
    return re.sub(r"(?<!\d)(?<!\d[,.])(\d++),(?=\d{1,2}(?!\d|[,.]\d))", r"\1.", r)

def final(r):
    n = r"(?:(?<![\w)])-)?(?<!\d)\d++(?:\.\d++)?"
    q = {float(z) for z in re.findall(n, digits(prompt).replace("−", "-"))}
    def plain(r):
        r = re.sub(r"(?<=\d)(?:\{,\}|\\[,;:! ])(?=\d{3})", ",", r)
        r = digits(r).replace("−", "-").replace("⁄", "/")
        r = re.sub(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", r" \1/\2", r)
        v = "½⅓⅔¼¾⅛⅜⅝⅞"
        r = re.sub(f"[{v}]", lambda m: " " + "1/2 1/3 2/3 1/4 3/4 1/8 3/8 5/8 7/8".split()[v.index(m[0])], r)
        f = r"(?<![\w./])(?:(\d{1,4})[ \u00a0]+(?:and )?)?([1-9]|1[0-5])/([2-9]|1[0-6])(?![\w./])"
        return re.sub(f, lambda m: f"{int(m[1] or 0) + int(m[2]) / int(m[3]):.4f}" if int(m[2]) < int(m[3]) else m[0], r)
    r, p = plain(r), plain(prompt)
    h = r"(?i)(?<![\d.:])(\d{1,4})[ \u00a0]?(?:h|hrs?|hours?|Stunden|Std\.?)(?:,? and |,? und |, ?| )?"
    h += r"(\d{1,2})[ \u00a0]?(?:m|mins?|minutes?|Minuten)\b"
    h, t = re.compile(h), lambda m: f"{int(m[1]) + int(m[2]) / 60:.4f} h {60 * int(m[1]) + int(m[2])} min"
    r = h.sub(lambda m: m[0] if float(m[1]) in q and float(m[2]) in q else t(m), r)
    p = q | {float(z) for z in re.findall(n, p)}
    new = lambda y: [z for z in y if float(z) not in p]
    x = re.sub(rf"{n}%?(?:[ \t]*(?:[*x×÷/+^·–-]|\\times|\\div|of)[ \t]*[$€£]?{n}%?)+", " ", r)
    y = [*re.finditer(rf"(?i)(?:####|\\boxed\{{|\b(?:answer|result)(?: is|:))[^\w\n-]*({n})", x)][-1:]
    if y:
        y = re.findall(n, x[y[0].start(1):].split("\n", 1)[0])
        return [y[0], *(new(y)[:1] if float(y[0]) in p else [])]
    b = [z for z in re.findall(r"\*\*([^*\n]+)\*\*", x) if not re.match(r"[Ss]tep|\d++(?!\.\d)(?::|[.)]\s*\S)", z)]
    b = [z for y in b for z in re.findall(n, y)]
    if new(b):
        return [new(b)[0], new(b)[-1]]
    z = [*re.finditer(rf"(\b(?:1|one) [^\W\d]+ )?(?<!\()[=≈]\s*(?:\\?[$€£₹] ?)?({n})", x)][-1:]
    if z and not z[0][1] and new([z[0][2]]):
        return [z[0][2], *new(re.findall(n, x[z[0].end():]))[-1:]]
    y = new(re.findall(n, x)) or new(re.findall(n, r))
    return [*b[-1:], *[a[2] for a in z], *y[:1], *y[-1:]] or (re.findall(n, x) or re.findall(n, r))[-1:]

def answer(r, x):
    if isinstance(x, str):
        import dis
        n = r"(?<![A-WYZa-wyz_\d.])(?:\d++(?:\.\d++)?|\.\d++)(?!(?:st|nd|rd|th)\b)"
        w = "three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
        w = dict(zip(f"{w} eighteen nineteen twenty".split(), range(3, 21)))
        w |= {"hundred": 100, "thousand": 1000, "dozen": 12, "twice": 2, "double": 2, "half": 2, "triple": 3}
        p = digits(prompt)
        q = re.findall(r"\b(?<!-)(?<!ty )[a-z]+\b(?!-)", p.lower())
        p = {float(y) for y in re.findall(n, p)} | {float(w[y]) for y in q if y in w}
        y = {float(y) for y in re.findall(n, x)}
        z = [str(i.argval) for i in dis.get_instructions(checks) if i.opname in ("LOAD_CONST", "LOAD_SMALL_INT")]
        z = {float(c) for c in re.findall(n, " ".join(z))}
        k = {14, 15, 16, 20, 24, 25.4, 27, 28, 30, 30.48, 32, 36, 50, 52, 60, 64, 90, 100, 128, 144, 180, 200, 273.15}
        k |= {360, 365, 366, 568, 1000, 1024, 1440, 1760, 2000, 3600, 5280, 10_000, 100_000, 1_000_000}
        o = {float(y) for y in re.findall(r"(?<!\d)\d++(?=(?:st|nd|rd|th)\b(?! power))", prompt)}
        many = re.findall(r"\b(?:half|twice|double|triple) (?:as|the|that|of)\b", prompt.lower())
        few = len(re.findall(r"(?i)\bhalf (?:the|that|of)\b", prompt)) > len(re.findall(r"/|\.[25]", x))
        few |= len(many) > len(re.findall(r"[*/]", x))
        u = r"\b(?:per|each|every|an?) (second|minute|hour|day|week|month|year)\b"
        u = "|".join(sorted({*re.findall(u, prompt.lower())}))
        few |= "|" in u and not (y - p or re.search(rf"(?i)\b\w+ (?:{u})s\b|\wday\b", prompt))
        if few or p - y - z or (y - p) & o or any(c > 12 and c not in k for c in y - p):
            raise ValueError("the prompt has other numbers than the calculation")
        x = eval(x)
    z = final(r)
    z += [y.replace(".", "") for y in z if re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", y) and x >= 1000]
    return any(abs(float(y) - x) < (0.0501 if re.search(r"\.\d$", y) else 0.01) for y in z)

def regex(r):
    s = r"[\\\[\]^$*+?(){}|]"
    x = re.findall(r"(?s)```\w*\n(.+?)```", r)
    if not x:
        x = [y for y in re.findall(r"`([^`\n]+)`", r) if len(y) < 2001]
        y = [y for y in dict.fromkeys(x) if re.search(s, y) and len(y) > 1 and y not in prompt][:40]
        x = [a for a in y if not any(a in b and a != b for b in y)] or x
    if not x:
        r = re.sub(r"(?<!\\)\*\*", " ", r)
        r = re.sub(r"(?im)^[^\n:]{0,60}\b(?:regexp?|pattern|expression)\b[^\n:\\\[(^]{0,20}:[ \t]+", "", r)
        x = re.findall(r"(?<!\S)\^\S+\$", r)
    p = re.compile(r"[A-Za-z]\W? [A-Za-z]+ [A-Za-z]")
    x = x or [y for y in r.split("\n") if re.search(r"[\\^{|\]]|\)[*+?]", y) and not p.search(y)]
    x = x or ["" if p.search(r) else r]
    x = next((y for y in x if re.search(s, y)), x[0]).strip()[:2001]
    q = r"(\"[^\"\n]+\"|'[^'\n]+'|`[^`\n]+`)"
    c = r"\b([rR])|^[\w ]+ = |pattern=|\b(?:re\.\w+|compile|RegExp|preg_\w+)\([ \t]*|grep -\w+ "
    z = r"(?:^|= |\bif \(|\breturn |\.\w+\()[ \t]*(/.+/[a-z]*)(?=[;,).]|$)"
    y = re.findall(rf"(?m)(?:{c}){q}|{z}", x)
    f = bool(re.search(r"\bre\.I\b|IGNORECASE|CASE_INSENSITIVE", x))
    y = [(a, b[1:-1] or c) for a, b, c in y]
    y = [(a, b) for a, b in y if b not in prompt and re.search(s, b)] or y
    if y:
        x = y[0][1] if y[0][0] else y[0][1].replace("\\\\", "\\")
    x = re.sub(r"^([\"'])(.+)\1$", r"\2", x)
    y = re.fullmatch(r"/(.+)/([a-z]*)", x)
    if y:
        x, f = y[1], f or "i" in y[2]
    if len(x) > 2000 or "\n" in x or not re.search(r"[\\\[\]^$*+?(){}|.]", x):
        return None
    try:
        return re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", x), re.I if f else 0)
    except (re.error, RecursionError, OverflowError):
        return None

def is_regex(r, *x):
    import dis
    y = [i.argval for i in dis.get_instructions(checks) if i.opname == "LOAD_CONST"]
    if any(y.count(z) > 1 or z not in prompt for z in x):
        raise ValueError("an example of the prompt is misread")
    return regex(r) is not None

def matches(r, *x):
    return is_regex(r, *x) and all(regex(r).fullmatch(y) for y in x)

def no_match(r, *x):
    return is_regex(r, *x) and not any(regex(r).fullmatch(y) for y in x)

def one_line(r):
    return "\n" not in re.sub(r"^```\w*\n|\n```$", "", r.strip())

def blank_lines(r):
    return sum(not x.strip() for x in r.strip().split("\n"))

def markdown(r):
    x = r"(?m)^[ \t]*(?:#{1,6} |[-*+] |\d+\. |\||>(?: \w|[^\W\d_]))|\*\*(?!\w)|(?<!\w)\*\*|(?<!_)__(?=[^\W_])"
    x += r"|```|`[^`\n]+`|\]\(|~~|(?<![\w*\\])\*(?![\s*])[^*\n]+(?<![\s\\])\*(?![\w*])"
    x += r"|(?<![\w\\])_(?![\s_])[^_\n]+(?<!\s)_(?!\w)"
    return len(re.findall(x, r))
"""

_LANGUAGES = {
    "German": "der die und das ist nicht ein eine ich mit auf für den von zu sich auch dem des sind es wir sie er im so will "
    "was in",
    "French": "le la les et des est une dans pour que qui pas sur avec ce vous nous au du il a à je de en un me se tu on",
    "Spanish": "el la los las y de que en un una es por con para no se su del como más a me lo le les te",
    "Italian": "il la che di e un una per non è sono con del della le gli si come più anche a ma i ho me lo ne",
    "Portuguese": "o a os as e de que um uma em para com não se do da no na por mais me eu é você",
    "Dutch": "de het een en van is dat niet ik je op te met voor zijn er aan ook als maar we in of was",
    "Swedish": "i och att det som en ett är på för med inte jag av till den har de om så vi",
    "Danish": "i og at det som en et er på for med ikke jeg af til den har de om så vi",
    "Norwegian": "i at og å det som en et er på for med ikke jeg av til den har de om så vi",
    "Finnish": "ja on ei se että hän oli mutta kun niin myös ovat tai joka sen olla mitä minä kuin jos no so",
    "Polish": "i w na nie się z do jest to że jak po co ale od za tak dla są przez my on a by",
    "Czech": "a v na se je že to s z do jako ale pro by jsem jsou si ve byl také my on i no",
    "Turkish": "ve bir bu da de için ile çok ne gibi daha var olarak ama en ben o kadar sonra mi",
    "Romanian": "și de la în a un o nu cu pe care este din mai pentru ce se sunt că sa i le me",
    "Hungarian": "a az és hogy nem is egy van meg de ez volt csak már mint ha még vagy ki el be",
    "Indonesian": "yang dan di ini itu dengan untuk tidak dari dalam akan pada saya ke karena ada bisa adalah mereka kita",
    "Vietnamese": "và là của có không cho một các được với này những trong để người đã khi tôi về thì",
    "Swahili": "na ya wa kwa ni katika la za kuwa hii hiyo kama cha yake watu sana lakini pia huu vya",
    "English": "the and of to in is that it for you with on are this be as have not was they i a do no we my so can at or by "
    "from will your",
}
_SCRIPTS = {
    "Russian": "\u0400-\u04ff", "Ukrainian": "\u0400-\u04ff", "Bulgarian": "\u0400-\u04ff", "Greek": "\u0370-\u03ff",
    "Hebrew": "\u0590-\u05ff", "Arabic": "\u0600-\u06ff", "Persian": "\u0600-\u06ff", "Urdu": "\u0600-\u06ff",
    "Hindi": "\u0900-\u097f", "Marathi": "\u0900-\u097f", "Nepali": "\u0900-\u097f", "Bengali": "\u0980-\u09ff",
    "Punjabi": "\u0a00-\u0a7f", "Gujarati": "\u0a80-\u0aff", "Tamil": "\u0b80-\u0bff", "Telugu": "\u0c00-\u0c7f",
    "Kannada": "\u0c80-\u0cff", "Malayalam": "\u0d00-\u0d7f", "Thai": "\u0e00-\u0e7f", "Korean": "\uac00-\ud7af",
    "Japanese": "\u3040-\u30ff", "Chinese": "\u4e00-\u9fff",
}  # fmt: skip
LANGUAGES = (*_LANGUAGES, *_SCRIPTS)

_LANGUAGE = f"""
def language(r, name):
    scripts = {_SCRIPTS!a}
    common = {_LANGUAGES!a}
    if name not in scripts and name not in common:
        if len(checks.__code__.co_names) == 1:
            raise LookupError(name + " is no language that this function knows")
        return True
    y = re.sub(r"(?ms)^[ \\t]*```.*?^[ \\t]*```|`[^`\\n]*`", "", r)
    r = y if re.search(r"[^\\W\\d_]", y) else r
    r = re.sub(r"[A-Za-z]+", "a", r) if name in ("Chinese", "Korean") else r
    x = re.sub(r"[\\W\\d_]", "", r)
    if not x:
        return False
    if name in scripts:
        return len(re.findall(f"[{{scripts[name]}}]", x)) > len(x) / (2 if name not in ("Japanese",) else 8)
    y = [w.lower() for w in re.findall(r"[^\\W\\d_]+", r)]
    if len(re.findall(r"[A-Za-z\\u00c0-\\u024f\\u1e00-\\u1eff]", x)) <= len(x) / 2:
        return False
    found = {{k: sum(map(frozenset(z.split()).__contains__, y)) for k, z in common.items()}}
    most = max(found.values())
    return found[name] == most and (most > 0 or len(y) <= 20)
"""


def _inside(name: str) -> str:
    """Return the text of a module of the folder `inside`, as programs have it."""
    text = resources.files("tirjudge_training.instructions.inside").joinpath(name).read_text(encoding="utf-8")
    return text.partition("# Program\n")[2]


TOOL_SOURCES: dict[str, str] = {
    "examples": _inside("code_examples.py"),
    "tells": _inside("look_ups.py"),
    "of_kind": _inside("look_ups.py"),
}
"""Name of a function that calls tools -> the module that has it."""

_SHARED = {
    "    # SENTENCE_PARTS": r"""    t = r"\s*(?![-*•+>]|\d+[.)])[^\n]{1,60}(?<![.!?…,:])\s*"
    x = re.sub(r"(?m)^ {0,3}#{1,6}[ \t].*$|^[ \t]*\*\*[^*\n]*[^*\n.!?]\*\*:?[ \t]*$", "", r)
    x = re.split(r"(?<!,)\n[ \t]*\n|\n(?=[ \t]*(?:[-*•+>]|\d+[.)])[ \t])", x if re.search(r"\w", x) else r)
    x = [y for y in x if re.search(r"\w", y)]
    if len(x) > 1 and (x[0].rstrip("*_ \n").endswith(":") or re.fullmatch(t, x[0]) and re.search("[.!?…]", x[1])):
        x = x[1:]""",
    "    # PARAGRAPHS_OF_TEXT": r"""    g = r"(?i:subject:.*|(?:hi|hello|hey|dear)\b.{0,60}[,:!]|.{1,99}:)"
    s = r"\S+(?: \S+){0,3},[ \t]*\n\S+(?: \S+){0,4}(?:\n.{1,60}){0,2}(?<![.!?])"
    x = body(r)
    x = [y for i, y in enumerate(x, 1) if not re.fullmatch(g if i < len(x) else s, y.strip())] or x""",
}
"""Marks in `_SOURCES` -> the lines that they stand for: the parts of a text with sentences, without titles and an intro; its
paragraphs, without greeting, intro and sign-off. A function for them would be one more that the judge has to define."""


def _with_shared(text: str) -> str:
    for mark, lines in _SHARED.items():
        text = text.replace(mark, lines)
    return text


SOURCES: dict[str, str] = {
    match[1]: match[0].strip("\n") + "\n"
    for match in re.finditer(r"(?ms)^def (\w+)\(.*?(?=^def |\Z)", _with_shared(_SOURCES) + _LANGUAGE)
} | TOOL_SOURCES
"""Name of a function -> its source."""


@cache
def _calls(name: str) -> tuple[str, ...]:
    """Return the functions that one function calls, itself excluded."""
    if name in TOOL_SOURCES:
        return ()
    return tuple(other for other in SOURCES if other != name and re.search(rf"(?<![\w.]){other}\(", SOURCES[name]))


def definitions(code: str) -> list[str]:
    """Return the sources of all functions that a piece of code calls, directly or not, in the order of `SOURCES`."""
    needed: set[str] = set()
    new = {name for name in re.findall(r"(?<![\w.])(\w+)\(", code) if name in SOURCES}
    while new:
        needed |= new
        new = {called for name in new for called in _calls(name)} - needed
    return list(dict.fromkeys(source for name, source in SOURCES.items() if name in needed))
