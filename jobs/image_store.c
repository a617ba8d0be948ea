/* A short list of pictures, newest first. */
#include "jobs/image_store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct image_store {
    struct mem *mem;
    uint64_t limit;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t released;
    uint64_t used, borrowed; /* bytes */
    struct image_rows *newest, *oldest;
    bool woken, waited; /* somebody waits for `released` */
};

enum status image_store_open(struct image_store **out, struct mem *mem, uint64_t limit_bytes,
                             struct err *e)
{
    struct image_store *s = *out = calloc(1, sizeof *s);
    if (!s) return err_set(e, E_NOMEM, "pictures: no memory");
    s->mem = mem;
    s->limit = limit_bytes;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->released, NULL);
    return OK;
}

static void unlink_rows(struct image_store *s, struct image_rows *r)
{
    *(r->older ? &r->older->newer : &s->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &s->newest) = r->older;
    r->older = r->newer = NULL;
}

static void link_newest(struct image_store *s, struct image_rows *r)
{
    r->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = r;
    s->newest = r;
}

static void wait_for_release(struct image_store *s)
{
    s->waited = true;
    pthread_cond_wait(&s->released, &s->lock);
    s->waited = false;
}

bool image_store_full(struct image_store *s)
{
    pthread_mutex_lock(&s->lock);
    bool full = s->waited;
    pthread_mutex_unlock(&s->lock);
    return full;
}

/* Drops unborrowed pictures, oldest first, until `bytes` more fit. */
static bool drop(struct image_store *s, size_t bytes)
{
    bool any = false;
    for (struct image_rows *r = s->oldest, *next; r && s->used + bytes > s->limit; r = next) {
        next = r->newer;
        if (r->borrowed) continue;
        unlink_rows(s, r);
        s->used -= r->bytes;
        mem_free(s->mem, r->rows);
        free(r);
        any = true;
    }
    return any;
}

void image_store_close(struct image_store *s)
{
    if (!s) return;
    assert(s->borrowed == 0);
    s->limit = 0;
    drop(s, 0);
    pthread_cond_destroy(&s->released);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void borrow(struct image_store *s, struct image_rows *r)
{
    if (r->borrowed++ == 0) s->borrowed += r->bytes;
}

struct image_rows *image_store_get(struct image_store *s, const char *sha256)
{
    pthread_mutex_lock(&s->lock);
    struct image_rows *r = s->newest;
    while (r && strcmp(r->sha256, sha256) != 0) r = r->older;
    if (r) {
        borrow(s, r);
        unlink_rows(s, r);
        link_newest(s, r);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

void image_store_release(struct image_store *s, struct image_rows *r)
{
    if (!r) return;
    pthread_mutex_lock(&s->lock);
    assert(r->borrowed > 0);
    if (--r->borrowed == 0) {
        s->borrowed -= r->bytes;
        drop(s, 0);
        pthread_cond_broadcast(&s->released);
    }
    pthread_mutex_unlock(&s->lock);
}

void image_store_room(struct image_store *s, size_t bytes, size_t own)
{
    pthread_mutex_lock(&s->lock);
    drop(s, bytes);
    while (!s->woken && s->used + bytes > s->limit && s->borrowed > own) {
        wait_for_release(s);
        drop(s, bytes);
    }
    pthread_mutex_unlock(&s->lock);
}

bool image_store_relieve(struct image_store *s, size_t own)
{
    pthread_mutex_lock(&s->lock);
    uint64_t limit = s->limit;
    s->limit = 0;
    bool relieved = drop(s, 0);
    s->limit = limit;
    if (!relieved && !s->woken && s->borrowed > own) {
        uint64_t before = s->borrowed;
        while (!s->woken && s->borrowed >= before) wait_for_release(s);
        relieved = true;
    }
    pthread_mutex_unlock(&s->lock);
    return relieved;
}

enum status image_store_put(struct image_store *s, struct image_rows **out, const char *sha256,
                            const struct picture_info *info, float *rows, size_t bytes,
                            struct err *e)
{
    struct image_rows *r = *out = calloc(1, sizeof *r);
    if (!r) {
        mem_free(s->mem, rows);
        return err_set(e, E_NOMEM, "pictures: no memory");
    }
    memcpy(r->sha256, sha256, sizeof r->sha256);
    r->info = *info;
    r->rows = rows;
    r->bytes = bytes;
    pthread_mutex_lock(&s->lock);
    s->used += bytes;
    borrow(s, r);
    link_newest(s, r);
    pthread_mutex_unlock(&s->lock);
    return OK;
}

void image_store_wake(struct image_store *s)
{
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_broadcast(&s->released);
    pthread_mutex_unlock(&s->lock);
}
