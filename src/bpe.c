/* Merging takes the adjacent pair of lowest rank, the leftmost on ties, until none is in the table.
 * Pairs wait in a heap ordered by rank and place; one that no longer stands (its part has another
 * rank by now) is dropped when it comes up. Each merge adds two pairs at most, so a piece costs
 * n log n whatever it holds. */
#include "src/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status bpe_add(struct bpe_table *t, const char *s, size_t len, struct err *e)
{
    assert(len > 0);
    if (t->n + 2 > t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 512;
        uint32_t *at = realloc(t->at, cap * sizeof *at);
        if (!at) return err_set(e, E_NOMEM, "tokenizer: no memory for %zu strings", cap);
        t->at = at;
        t->cap = cap;
    }
    if (t->bytes.len + len > INT32_MAX) return err_set(e, E_MODEL, "tokenizer: too many bytes");
    enum status rc = buf_add(&t->bytes, s, len, e);
    if (rc) return rc;
    if (!t->n) t->at[0] = 0;
    t->at[++t->n] = (uint32_t)t->bytes.len;
    if (len > t->longest) t->longest = len;
    return OK;
}

static size_t hash(const char *s, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 32);
}

const char *bpe_bytes(const struct bpe_table *t, uint32_t number, size_t *len)
{
    *len = t->at[number + 1] - t->at[number];
    return t->bytes.data + t->at[number];
}

/* The slot that holds s, or the empty one where it belongs. */
static uint32_t *slot(const struct bpe_table *t, const char *s, size_t len)
{
    for (size_t i = hash(s, len) & t->mask;; i = (i + 1) & t->mask) {
        uint32_t number = t->slots[i];
        if (number == BPE_NONE) return &t->slots[i];
        size_t n;
        const char *at = bpe_bytes(t, number, &n);
        if (n == len && !memcmp(at, s, len)) return &t->slots[i];
    }
}

enum status bpe_index(struct bpe_table *t, uint32_t *twice, struct err *e)
{
    *twice = BPE_NONE;
    size_t size = 16;
    while (size < t->n * 2) size *= 2;
    t->slots = malloc(size * sizeof *t->slots);
    if (!t->slots) return err_set(e, E_NOMEM, "tokenizer: no memory for %zu slots", size);
    t->mask = size - 1;
    memset(t->slots, 0xFF, size * sizeof *t->slots);
    for (uint32_t i = 0; i < t->n; i++) {
        size_t len;
        const char *s = bpe_bytes(t, i, &len);
        uint32_t *at = slot(t, s, len);
        if (*at == BPE_NONE)
            *at = i;
        else
            *twice = i;
    }
    return OK;
}

void bpe_free(struct bpe_table *t)
{
    buf_free(&t->bytes);
    free(t->at);
    free(t->slots);
    *t = (struct bpe_table){0};
}

uint32_t bpe_find(const struct bpe_table *t, const char *s, size_t len)
{
    return len && len <= t->longest ? *slot(t, s, len) : BPE_NONE;
}

void bpe_work_free(struct bpe_work *w)
{
    free(w->parts);
    free(w->heap);
    w->parts = NULL;
    w->heap = NULL;
    w->cap = w->n_heap = 0;
}

static enum status work_room(struct bpe_work *w, size_t len, struct err *e)
{
    if (len <= w->cap) return OK;
    bpe_work_free(w);
    w->parts = malloc(len * sizeof *w->parts);
    w->heap = malloc(3 * len * sizeof *w->heap);
    w->cap = len;
    if (w->parts && w->heap) return OK;
    bpe_work_free(w);
    return err_set(e, E_NOMEM, "tokenizer: no memory for a piece of %zu bytes", len);
}

static void heap_push(struct bpe_work *w, uint64_t item)
{
    size_t i = w->n_heap++;
    for (; i && w->heap[(i - 1) / 2] > item; i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = item;
}

static uint64_t heap_pop(struct bpe_work *w)
{
    uint64_t top = w->heap[0], item = w->heap[--w->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->n_heap) break;
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= item) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = item;
    return top;
}

/* Rank of the part that begins at `from` together with the next one, put into the heap. */
static void offer(const struct bpe_table *t, const char *piece, size_t len, struct bpe_work *w,
                  uint32_t from)
{
    uint32_t next = w->parts[from].end;
    w->parts[from].rank = BPE_NONE;
    if (next == len) return;
    uint32_t rank = bpe_find(t, piece + from, w->parts[next].end - from);
    w->parts[from].rank = rank;
    if (rank != BPE_NONE) heap_push(w, (uint64_t)rank << 32 | from);
}

enum status bpe_merge(const struct bpe_table *t, const char *piece, size_t len, struct bpe_work *w,
                      struct err *e)
{
    assert(len > 0 && len < INT32_MAX);
    enum status rc = work_room(w, len, e);
    if (rc) return rc;
    w->n_heap = 0;
    for (uint32_t i = 0; i < len; i++) w->parts[i] = (struct bpe_part){i - 1, i + 1, BPE_NONE};
    for (uint32_t i = 0; i + 1 < len; i++) offer(t, piece, len, w, i);
    while (w->n_heap) {
        uint64_t item = heap_pop(w);
        uint32_t left = (uint32_t)item;
        struct bpe_part *p = &w->parts[left];
        if (p->rank != item >> 32) continue;
        struct bpe_part *right = &w->parts[p->end];
        p->end = right->end;
        right->rank = BPE_NONE;
        if (p->end < len) w->parts[p->end].prev = left;
        offer(t, piece, len, w, left);
        if (left) offer(t, piece, len, w, p->prev);
    }
    return OK;
}
