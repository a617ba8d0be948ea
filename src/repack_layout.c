/* Sorting tensors into new files, and the text of their headers and index.
 *
 * One sorted array holds all tensors in the order of the new files; a shard is a range of it. The
 * padding is not in the array: it follows from the sizes, and a cursor puts it in between. Offsets
 * in a header count from its own end, so its text is known before its length. */
#include "src/repack_layout.h"

#include "src/os.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS_MAX 99999
/* The reference reader refuses headers over 100 MB. */
#define HEADER_MAX ((uint64_t)64 << 20)
/* JSON numbers are whole up to here. */
#define BYTES_MAX ((uint64_t)1 << 53)

#define PAD_ENTRY_BYTES 150

static const char metadata[] = "{\"__metadata__\":{\"format\":\"pt\"}";

struct entry {
    const struct tensor_info *t;
    uint32_t layer, expert;
    uint32_t
        prefix;    /* characters of the name that all tensors of this expert share; 0: no expert */
    uint32_t size; /* of an element */
};

struct shard {
    size_t first, n;
    uint64_t pad; /* padding tensors of the shards before */
    uint64_t header_bytes, bytes;
};

struct repack_layout {
    struct mem *mem;
    struct entry *entries;
    size_t n;
    struct shard *shards;
    size_t n_shards;
    uint64_t tensor_bytes, experts;
};

static uint64_t round_up(uint64_t n)
{
    return (n + OS_DIRECT_ALIGN - 1) / OS_DIRECT_ALIGN * OS_DIRECT_ALIGN;
}

/* Digits up to a dot; NULL: something else, or too many. */
static const char *number(const char *s, uint32_t *out)
{
    size_t n = strspn(s, "0123456789");
    if (n == 0 || n > 9 || s[n] != '.') return NULL;
    *out = (uint32_t)strtoul(s, NULL, 10);
    return s + n + 1;
}

static void find_expert(struct entry *x)
{
    const char *name = x->t->name, *at = strstr(name, ".experts."), *end = NULL;
    const char *layers = strstr(name, "layers.");
    if (!at || !layers || layers > at || !number(layers + 7, &x->layer)) return;
    end = number(at + 9, &x->expert);
    if (end) x->prefix = (uint32_t)(end - name);
}

static void make_entry(struct entry *x, const struct tensor_info *t)
{
    uint64_t n = 1;
    *x = (struct entry){.t = t};
    for (unsigned i = 0; i < t->dims; i++) n *= t->shape[i];
    x->size = n ? (uint32_t)(t->bytes / n) : 8; /* no bytes: anywhere, so where all fit */
    find_expert(x);
    if (!x->prefix) x->layer = x->expert = 0;
}

#define COMPARE(a, b)                                                                              \
    if ((a) != (b)) return (a) < (b) ? -1 : 1

/* By expert: the others first, then by layer, number and, should two parts of a model have the same
 * numbers, name. */
static int by_expert(const struct entry *x, const struct entry *y)
{
    COMPARE(x->prefix != 0, y->prefix != 0);
    COMPARE(x->layer, y->layer);
    COMPARE(x->expert, y->expert);
    COMPARE(x->prefix, y->prefix);
    return memcmp(x->t->name, y->t->name, x->prefix);
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int d = by_expert(x, y);
    if (d) return d;
    COMPARE(y->size, x->size);
    if (!x->prefix) {
        COMPARE(x->t->file, y->t->file);
        COMPARE(x->t->offset, y->t->offset);
    }
    /* the array that they point into is in order of name */
    COMPARE(x->t, y->t);
    return 0;
}

static bool same_expert(const struct entry *x, const struct entry *y)
{
    return x->prefix && by_expert(x, y) == 0;
}

static size_t quoted(const char *s)
{
    size_t n = 2;
    for (; *s; s++) n += (unsigned char)*s < 0x20 ? 6 : *s == '"' || *s == '\\' ? 2 : 1;
    return n;
}

static enum status quote(struct buf *b, const char *s, struct err *e)
{
    enum status rc = buf_add(b, "\"", 1, e);
    while (*s && !rc) {
        size_t n = 0;
        while ((unsigned char)s[n] >= 0x20 && s[n] != '"' && s[n] != '\\') n++;
        rc = buf_add(b, s, n, e);
        s += n;
        if (rc || !*s) break;
        rc = buf_addf(b, e, (unsigned char)*s < 0x20 ? "\\u%04x" : "\\%c", *s);
        s++;
    }
    return rc ? rc : buf_add(b, "\"", 1, e);
}

/* No fewer than its entry in a header takes. */
static uint64_t entry_bytes(const struct entry *x)
{
    return quoted(x->t->name) + 100 + 21 * (uint64_t)x->t->dims;
}

/* What must stay together from entry i on: one tensor, or an expert with its padding. */
struct record {
    size_t n;
    uint64_t bytes, header;
    bool padded;
};

static enum status next_record(const struct repack_layout *l, size_t i, struct record *r,
                               struct err *e)
{
    const struct entry *x = &l->entries[i];
    *r = (struct record){0};
    do {
        const struct entry *y = &l->entries[i + r->n++];
        r->header += entry_bytes(y);
        if (y->t->bytes > BYTES_MAX || (r->bytes += y->t->bytes) > BYTES_MAX)
            return err_set(e, E_MODEL, "tensor %s: the model is too large", y->t->name);
    } while (i + r->n < l->n && same_expert(x, &l->entries[i + r->n]));
    if (x->prefix && r->bytes % OS_DIRECT_ALIGN) {
        r->padded = true;
        r->bytes = round_up(r->bytes);
        r->header += PAD_ENTRY_BYTES;
    }
    return OK;
}

static enum status add_shard(struct repack_layout *l, size_t *cap, const struct shard *s,
                             struct err *e)
{
    if (l->n_shards == *cap) {
        struct shard *grown;
        size_t more = *cap ? *cap * 2 : 16;
        enum status rc = mem_array(l->mem, &grown, more, sizeof *grown, "new files", e);
        if (rc) return rc;
        if (*cap) memcpy(grown, l->shards, *cap * sizeof *grown);
        mem_free(l->mem, l->shards);
        l->shards = grown;
        *cap = more;
    }
    if (l->n_shards == SHARDS_MAX)
        return err_set(e, E_USAGE, "shards of this size make more than %d files", SHARDS_MAX);
    l->shards[l->n_shards++] = *s;
    return OK;
}

/* Cuts the array into shards. */
static enum status cut(struct repack_layout *l, uint64_t shard_bytes, struct err *e)
{
    size_t cap = 0, pads = 0;
    uint64_t header = 0, total = 0;
    enum status rc = l->n ? OK : err_set(e, E_MODEL, "the model has no tensors");
    struct record r;
    for (size_t i = 0; i < l->n && !rc; i += r.n) {
        rc = next_record(l, i, &r, e);
        if (rc) break;
        struct shard *s = l->n_shards ? &l->shards[l->n_shards - 1] : NULL;
        bool expert = l->entries[i].prefix != 0;
        if (!s || (expert && !l->entries[i - 1].prefix) || header + r.header > HEADER_MAX ||
            s->bytes + r.bytes + round_up(header + r.header) > shard_bytes) {
            rc = add_shard(l, &cap, &(struct shard){.first = i, .pad = pads}, e);
            if (rc) break;
            s = &l->shards[l->n_shards - 1];
            header = 8 + sizeof metadata;
        }
        header += r.header;
        s->n += r.n;
        s->bytes += r.bytes;
        pads += r.padded;
        l->experts += expert;
        total += r.bytes;
        if (total > BYTES_MAX) rc = err_set(e, E_MODEL, "the model is too large");
    }
    return rc;
}

/* With the headers' true sizes the shards' sizes are known. */
static enum status measure(struct repack_layout *l, struct err *e)
{
    enum status rc = OK;
    struct buf text = {0};
    for (size_t i = 0; i < l->n_shards && !rc; i++) {
        struct shard *s = &l->shards[i];
        rc = repack_layout_header(l, i, &text, e);
        s->header_bytes = text.len;
        s->bytes += text.len;
    }
    buf_free(&text);
    return rc;
}

enum status repack_layout_open(struct repack_layout **out, struct mem *mem,
                               const struct safetensors *from, uint64_t shard_bytes, struct err *e)
{
    struct repack_layout *l;
    *out = NULL;
    enum status rc = mem_alloc(mem, &l, sizeof *l, "new files", e);
    if (rc) return rc;
    *l = (struct repack_layout){.mem = mem, .n = safetensors_count(from)};
    rc = mem_array(mem, &l->entries, l->n, sizeof *l->entries, "table of tensors", e);
    if (rc) goto out;
    for (size_t i = 0; i < l->n; i++) {
        make_entry(&l->entries[i], safetensors_at(from, i));
        l->tensor_bytes += safetensors_at(from, i)->bytes;
    }
    qsort(l->entries, l->n, sizeof *l->entries, by_place);
    rc = cut(l, shard_bytes, e);
    if (!rc) rc = measure(l, e);
out:
    if (rc)
        repack_layout_close(l);
    else
        *out = l;
    return rc;
}

void repack_layout_close(struct repack_layout *l)
{
    if (!l) return;
    mem_free(l->mem, l->entries);
    mem_free(l->mem, l->shards);
    mem_free(l->mem, l);
}

size_t repack_layout_shards(const struct repack_layout *l)
{
    return l->n_shards;
}

uint64_t repack_layout_shard_bytes(const struct repack_layout *l, size_t shard)
{
    return l->shards[shard].bytes;
}

uint64_t repack_layout_experts(const struct repack_layout *l)
{
    return l->experts;
}

void repack_layout_name(const struct repack_layout *l, size_t shard, char out[REPACK_NAME_CHARS])
{
    snprintf(out, REPACK_NAME_CHARS, "model-%05zu-of-%05zu.safetensors", shard + 1, l->n_shards);
}

void repack_layout_begin(const struct repack_layout *l, size_t shard, struct repack_cursor *c)
{
    const struct shard *s = &l->shards[shard];
    *c = (struct repack_cursor){.at = s->first,
                                .first = s->first,
                                .end = s->first + s->n,
                                .offset = s->header_bytes,
                                .pad = s->pad};
}

bool repack_layout_next(const struct repack_layout *l, struct repack_cursor *c,
                        struct repack_piece *p)
{
    const struct entry *x = &l->entries[c->at];
    bool goes_on = c->at > c->first && c->at < c->end && same_expert(x - 1, x);
    uint64_t pad = round_up(c->offset) - c->offset;
    *p = (struct repack_piece){.offset = c->offset};
    if (c->at > c->first && x[-1].prefix && !goes_on && pad) {
        p->bytes = pad;
        p->pad = c->pad++;
    } else if (c->at < c->end) {
        p->t = x->t;
        p->bytes = x->t->bytes;
        c->at++;
    } else {
        return false;
    }
    c->offset += p->bytes;
    return true;
}

static enum status header_entry(const struct repack_piece *p, uint64_t data, struct buf *out,
                                struct err *e)
{
    const struct tensor_info *t = p->t;
    enum status rc = buf_add(out, ",", 1, e);
    if (rc) return rc;
    if (!t) {
        rc = buf_addf(out, e,
                      "\"" SAFETENSORS_PAD "%" PRIu64 "\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64,
                      p->pad, p->bytes);
    } else {
        rc = quote(out, t->name, e);
        if (!rc) rc = buf_addf(out, e, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype);
        for (unsigned i = 0; i < t->dims && !rc; i++)
            rc = buf_addf(out, e, "%s%" PRIu64, i ? "," : "", t->shape[i]);
    }
    if (rc) return rc;
    return buf_addf(out, e, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", p->offset - data,
                    p->offset - data + p->bytes);
}

enum status repack_layout_header(const struct repack_layout *l, size_t shard, struct buf *out,
                                 struct err *e)
{
    struct repack_cursor c;
    struct repack_piece p;
    out->len = 0;
    enum status rc = buf_add(out, "\0\0\0\0\0\0\0", 8, e);
    if (!rc) rc = buf_add(out, metadata, sizeof metadata - 1, e);
    repack_layout_begin(l, shard, &c);
    while (!rc && repack_layout_next(l, &c, &p))
        rc = header_entry(&p, l->shards[shard].header_bytes, out, e);
    if (!rc) rc = buf_add(out, "}", 1, e);
    while (!rc && out->len % OS_DIRECT_ALIGN) rc = buf_add(out, " ", 1, e);
    for (unsigned i = 0; i < 8 && !rc; i++) out->data[i] = (char)((out->len - 8) >> (8 * i));
    return rc;
}

enum status repack_layout_index(const struct repack_layout *l, size_t shard, struct buf *out,
                                struct err *e)
{
    const struct shard *s = &l->shards[shard];
    char file[REPACK_NAME_CHARS];
    enum status rc = OK;
    repack_layout_name(l, shard, file);
    out->len = 0;
    if (shard == 0)
        rc = buf_addf(out, e, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{",
                      l->tensor_bytes);
    for (size_t i = s->first; i < s->first + s->n && !rc; i++) {
        if (i) rc = buf_add(out, ",\n", 2, e);
        if (!rc) rc = quote(out, l->entries[i].t->name, e);
        if (!rc) rc = buf_addf(out, e, ":\"%s\"", file);
    }
    if (!rc && shard + 1 == l->n_shards) rc = buf_add(out, "}}\n", 3, e);
    return rc;
}
