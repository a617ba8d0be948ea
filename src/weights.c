/* Pinned layers are loaded once; the others pass through two buffers, one in use while the other is
 * filled with the layer that comes next. A layer is filled part by part, by readers and by whoever
 * waits for it; the one that loads the last part makes the layer ready. The lock guards the buffers
 * and counts and is never held across a read. */
#include "src/weights.h"

#include "src/os.h"
#include "src/weights_load.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct buffer {
    enum { EMPTY, LOADING, READY, FAILED } state;
    char *block;
    unsigned layer; /* when not EMPTY */
    bool in_use;    /* handed out by the last weights_layer */
    struct weights_parts parts;
    size_t next, under_way; /* parts not yet begun; begun and not ended */
    struct err err;
};

struct weights {
    struct weights_source from;
    size_t pinned;
    void *global_block, **blocks; /* [layers], of the pinned ones */
    struct global_weights global;
    struct layer_weights *layers;

    struct buffer buffer[2];
    unsigned buffers; /* 0: all pinned; 1: one layer streams; else 2 */
    struct readers *readers;
    uint64_t streamed;
    double wait_s;
    pthread_mutex_t lock;
    pthread_cond_t done;
};

/* The last part ended. With the lock, which is dropped meanwhile. */
static void end_layer(struct weights *w, struct buffer *b)
{
    enum status rc = b->err.code;
    if (!rc) {
        pthread_mutex_unlock(&w->lock);
        rc = weights_layer_ready(w->from.config, &b->parts, b->block, b->layer,
                                 &w->layers[b->layer], &b->err);
        pthread_mutex_lock(&w->lock);
    }
    b->state = rc ? FAILED : READY;
    pthread_cond_broadcast(&w->done);
}

/* Loads one part, if there is one to begin. With the lock, which is dropped meanwhile. */
static bool load_some(struct weights *w)
{
    struct buffer *b = NULL;
    for (unsigned i = 0; i < w->buffers && !b; i++)
        if (w->buffer[i].state == LOADING && w->buffer[i].next < w->buffer[i].parts.n)
            b = &w->buffer[i];
    if (!b) return false;
    const struct weights_part *p = &b->parts.part[b->next++];
    b->under_way++;
    struct err e;
    uint64_t bytes;
    pthread_mutex_unlock(&w->lock);
    readers_begin(w->readers);
    enum status rc = weights_part_load(&w->from, p, b->block, &bytes, &e);
    readers_end(w->readers);
    pthread_mutex_lock(&w->lock);
    w->streamed += bytes;
    if (rc && !b->err.code) b->err = e;
    if (rc) b->next = b->parts.n;
    if (--b->under_way == 0 && b->next == b->parts.n) end_layer(w, b);
    return true;
}

/* A readers_fn. */
static bool read_ahead(void *weights)
{
    struct weights *w = weights;
    pthread_mutex_lock(&w->lock);
    bool did = load_some(w);
    pthread_mutex_unlock(&w->lock);
    return did;
}

static enum status alloc_block(struct weights *w, uint64_t bytes, void *block, struct err *e)
{
    return mem_alloc_aligned(w->from.mem, block, bytes, OS_DIRECT_ALIGN, "weights", e);
}

static enum status load_block(struct weights *w, unsigned layer, void **block,
                              struct weights_parts *p, struct err *e)
{
    enum status rc = weights_parts_of(p, w->from.config, w->from.files, layer, e);
    uint64_t bytes;
    if (!rc) rc = alloc_block(w, p->bytes, block, e);
    for (size_t i = 0; !rc && i < p->n; i++)
        rc = weights_part_load(&w->from, &p->part[i], *block, &bytes, e);
    return rc;
}

static enum status load_pinned(struct weights *w, struct err *e)
{
    const struct config *c = w->from.config;
    struct weights_parts p;
    enum status rc = load_block(w, c->layers, &w->global_block, &p, e);
    if (!rc) weights_global_ready(&p, w->global_block, &w->global);
    for (unsigned i = 0; !rc && i < w->pinned; i++) {
        rc = load_block(w, i, &w->blocks[i], &p, e);
        if (!rc) rc = weights_layer_ready(c, &p, w->blocks[i], i, &w->layers[i], e);
    }
    return rc;
}

static enum status open_stream(struct weights *w, struct err *e)
{
    const struct config *c = w->from.config;
    uint64_t most = 0;
    for (unsigned i = (unsigned)w->pinned; i < c->layers; i++) {
        uint64_t bytes;
        enum status rc = weights_bytes(c, w->from.files, i, &bytes, e);
        if (rc) return rc;
        if (bytes > most) most = bytes;
    }
    w->buffers = c->layers - w->pinned < 2 ? (unsigned)(c->layers - w->pinned) : 2;
    for (unsigned i = 0; i < w->buffers; i++) {
        enum status rc = alloc_block(w, most, &w->buffer[i].block, e);
        if (rc) return rc;
    }
    if (w->buffers && w->readers) readers_add(w->readers, READERS_LAYERS, read_ahead, w);
    return OK;
}

enum status weights_open(struct weights **out, const struct weights_source *from, size_t pinned,
                         struct readers *readers, struct err *e)
{
    *out = NULL;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return err_set(e, E_NOMEM, "weights: no memory");
    w->from = *from;
    w->pinned = pinned;
    w->readers = readers;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->done, NULL);
    w->layers = calloc(from->config->layers, sizeof *w->layers);
    w->blocks = calloc(from->config->layers, sizeof *w->blocks);
    enum status rc = w->layers && w->blocks ? OK : err_set(e, E_NOMEM, "weights: no memory");
    if (!rc) rc = load_pinned(w, e);
    if (!rc) rc = open_stream(w, e);
    if (rc)
        weights_close(w);
    else
        *out = w;
    return rc;
}

void weights_close(struct weights *w)
{
    if (!w) return;
    readers_remove(w->readers, READERS_LAYERS);
    for (unsigned i = 0; w->blocks && i < w->from.config->layers; i++)
        mem_free(w->from.mem, w->blocks[i]);
    for (unsigned i = 0; i < 2; i++) mem_free(w->from.mem, w->buffer[i].block);
    mem_free(w->from.mem, w->global_block);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->done);
    free(w->blocks);
    free(w->layers);
    free(w);
}

const struct global_weights *weights_global(const struct weights *w)
{
    return &w->global;
}

static struct buffer *buffer_of(struct weights *w, unsigned layer)
{
    for (unsigned i = 0; i < w->buffers; i++)
        if (w->buffer[i].state != EMPTY && w->buffer[i].layer == layer) return &w->buffer[i];
    return NULL;
}

/* Has a layer read into a buffer that is neither in use nor at work. NULL when there is none. */
static struct buffer *ask(struct weights *w, unsigned layer)
{
    struct buffer *b = buffer_of(w, layer);
    if (b) return b;
    for (unsigned i = 0; i < w->buffers; i++) {
        b = &w->buffer[i];
        if (b->in_use || b->state == LOADING) continue;
        b->layer = layer;
        b->next = b->under_way = 0;
        b->err.code = weights_parts_of(&b->parts, w->from.config, w->from.files, layer, &b->err);
        b->state = b->err.code ? FAILED : LOADING;
        readers_wake(w->readers);
        return b;
    }
    return NULL;
}

/* The streamed layer that is needed next after this one; sweeps go round. */
static unsigned next_streamed(const struct weights *w, unsigned layer)
{
    unsigned next = layer + 1 < w->from.config->layers ? layer + 1 : 0;
    return next < w->pinned ? (unsigned)w->pinned : next;
}

static enum status wait_for(struct weights *w, unsigned layer, struct buffer **out, struct err *e)
{
    double since = os_now();
    struct buffer *b;
    while (!(b = ask(w, layer)) || b->state == LOADING)
        if (!load_some(w)) pthread_cond_wait(&w->done, &w->lock);
    w->wait_s += os_now() - since;
    *out = b;
    if (b->state == READY) return OK;
    if (e) *e = b->err;
    b->state = EMPTY;
    return b->err.code;
}

enum status weights_layer(struct weights *w, unsigned layer, const struct layer_weights **out,
                          struct err *e)
{
    *out = &w->layers[layer];
    if (!w->buffers) return OK;
    enum status rc = OK;
    pthread_mutex_lock(&w->lock);
    for (unsigned i = 0; i < w->buffers; i++) w->buffer[i].in_use = false;
    if (layer >= w->pinned) {
        struct buffer *b;
        rc = wait_for(w, layer, &b, e);
        if (!rc) b->in_use = true;
    }
    if (!rc && w->readers) ask(w, next_streamed(w, layer));
    pthread_mutex_unlock(&w->lock);
    return rc;
}

const struct layer_weights *weights_pinned(const struct weights *w, unsigned layer)
{
    return layer < w->pinned ? &w->layers[layer] : NULL;
}

void weights_stats(struct weights *w, uint64_t *streamed, double *wait_s)
{
    pthread_mutex_lock(&w->lock);
    *streamed = w->streamed;
    *wait_s = w->wait_s;
    pthread_mutex_unlock(&w->lock);
}
