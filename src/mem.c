/* Budgeted allocation. Each block carries its base and size in a header just below the aligned
 * pointer, so freeing needs neither and the count cannot drift. */
#include "src/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct header {
    void *base;
    uint64_t bytes; /* as counted against the budget */
};

void mem_init(struct mem *m, uint64_t limit_bytes)
{
    *m = (struct mem){.limit = limit_bytes, .fail_at = -1};
    pthread_mutex_init(&m->lock, NULL);
}

void mem_close(struct mem *m)
{
    assert(m->used == 0);
    pthread_mutex_destroy(&m->lock);
}

static int fault_due(struct mem *m)
{
    if (m->fail_at < 0) return 0;
    if (m->fail_at > 0) {
        m->fail_at--;
        return 0;
    }
    if (!m->fail_forever) m->fail_at = -1;
    return 1;
}

enum status mem_reserve(struct mem *m, uint64_t bytes, const char *what, struct err *e)
{
    enum status rc = OK;
    pthread_mutex_lock(&m->lock);
    if (fault_due(m)) {
        rc = err_set(e, E_NOMEM, "%s: no memory for %" PRIu64 " bytes", what, bytes);
    } else if (m->limit && (bytes > m->limit || m->used > m->limit - bytes)) {
        rc = err_set(e, E_BUDGET,
                     "%s: needs %" PRIu64 " bytes, the memory budget has %" PRIu64 " of %" PRIu64
                     " left",
                     what, bytes, m->limit - m->used, m->limit);
    } else {
        m->used += bytes;
        if (m->used > m->peak) m->peak = m->used;
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void mem_unreserve(struct mem *m, uint64_t bytes)
{
    pthread_mutex_lock(&m->lock);
    assert(bytes <= m->used);
    m->used -= bytes;
    pthread_mutex_unlock(&m->lock);
}

static enum status alloc(struct mem *m, void *out_ptr, size_t bytes, size_t align, int zero,
                         const char *what, struct err *e)
{
    *(void **)out_ptr = NULL;
    assert(align >= 64 && (align & (align - 1)) == 0);
    if (bytes > SIZE_MAX / 2) return err_set(e, E_NOMEM, "%s: impossible size", what);
    size_t total = bytes + sizeof(struct header) + align;
    enum status rc = mem_reserve(m, total, what, e);
    if (rc) return rc;
    char *base = zero ? calloc(1, total) : malloc(total);
    if (!base) {
        mem_unreserve(m, total);
        return err_set(e, E_NOMEM, "%s: no memory for %zu bytes", what, bytes);
    }
    uintptr_t at = ((uintptr_t)base + sizeof(struct header) + align - 1) & ~(uintptr_t)(align - 1);
    ((struct header *)at)[-1] = (struct header){base, total};
    *(void **)out_ptr = (void *)at;
    return OK;
}

enum status mem_alloc(struct mem *m, void *out_ptr, size_t bytes, const char *what, struct err *e)
{
    return alloc(m, out_ptr, bytes, 64, 1, what, e);
}

enum status mem_array(struct mem *m, void *out_ptr, size_t count, size_t size, const char *what,
                      struct err *e)
{
    *(void **)out_ptr = NULL;
    if (size && count > SIZE_MAX / 2 / size)
        return err_set(e, E_NOMEM, "%s: impossible size", what);
    return mem_alloc(m, out_ptr, count * size, what, e);
}

enum status mem_alloc_aligned(struct mem *m, void *out_ptr, size_t bytes, size_t align,
                              const char *what, struct err *e)
{
    return alloc(m, out_ptr, bytes, align, 0, what, e);
}

void mem_free(struct mem *m, void *p)
{
    if (!p) return;
    struct header h = ((struct header *)p)[-1];
    mem_unreserve(m, h.bytes);
    free(h.base);
}

void *arena_take(struct arena *a, uint64_t count, size_t size)
{
    assert(!size || count <= UINT64_MAX / 4 / size);
    uint64_t from = a->at;
    a->at += (count * size + 63) & ~(uint64_t)63;
    if (a->at > a->peak) a->peak = a->at;
    if (!a->base) return NULL;
    assert(a->at <= a->cap);
    return a->base + from;
}

static enum status buf_room(struct buf *b, size_t more, struct err *e)
{
    if (more > SIZE_MAX / 4 - b->len) return err_set(e, E_NOMEM, "text buffer: impossible size");
    size_t need = b->len + more + 1;
    if (need <= b->cap) return OK;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap *= 2;
    char *p = realloc(b->data, cap);
    if (!p) return err_set(e, E_NOMEM, "text buffer: no memory for %zu bytes", cap);
    b->data = p;
    b->cap = cap;
    return OK;
}

enum status buf_add(struct buf *b, const void *data, size_t len, struct err *e)
{
    enum status rc = buf_room(b, len, e);
    if (rc) return rc;
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return OK;
}

enum status buf_addf(struct buf *b, struct err *e, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    enum status rc = n < 0 ? err_set(e, E_INTERNAL, "bad format") : buf_room(b, (size_t)n, e);
    if (!rc) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
