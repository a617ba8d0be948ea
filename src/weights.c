/* Pinned layers are loaded once; the others pass through two buffers, one in use while a thread of
 * its own fills the other with the layer that comes next. The lock guards the buffers' states and
 * is never held across a read. */
#include "src/weights.h"

#include "src/os.h"
#include "src/weights_load.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define READER_STACK ((size_t)512 << 10)

struct buffer {
    enum { EMPTY, WANTED, LOADING, READY, FAILED } state;
    void *block;
    unsigned layer; /* when not EMPTY */
    bool in_use;    /* handed out by the last weights_layer */
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
    uint64_t streamed;
    double wait_s;
    pthread_mutex_t lock;
    pthread_cond_t wanted, done;
    pthread_t reader;
    bool reading, stop;
};

static void *reader_main(void *arg)
{
    struct weights *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct buffer *b = NULL;
        for (unsigned i = 0; i < w->buffers; i++)
            if (w->buffer[i].state == WANTED) b = &w->buffer[i];
        if (!b) {
            pthread_cond_wait(&w->wanted, &w->lock);
            continue;
        }
        b->state = LOADING;
        pthread_mutex_unlock(&w->lock);
        uint64_t bytes = 0;
        enum status rc = weights_bytes(w->from.config, w->from.files, b->layer, &bytes, &b->err);
        if (!rc)
            rc = weights_load_layer(&w->from, b->layer, b->block, &w->layers[b->layer], &b->err);
        pthread_mutex_lock(&w->lock);
        w->streamed += bytes;
        b->state = rc ? FAILED : READY;
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static enum status start_reader(struct weights *w, struct err *e)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, READER_STACK);
    int errnum = pthread_create(&w->reader, &attr, reader_main, w);
    pthread_attr_destroy(&attr);
    w->reading = !errnum;
    return errnum ? err_errno(e, errnum, "cannot start the reader of weights") : OK;
}

static enum status alloc_block(struct weights *w, uint64_t bytes, void **block, struct err *e)
{
    return mem_alloc_aligned(w->from.mem, block, bytes, 64, "weights", e);
}

static enum status load_pinned(struct weights *w, struct err *e)
{
    const struct config *c = w->from.config;
    uint64_t bytes;
    enum status rc = weights_bytes(c, w->from.files, c->layers, &bytes, e);
    if (!rc) rc = alloc_block(w, bytes, &w->global_block, e);
    if (!rc) rc = weights_load_global(&w->from, w->global_block, &w->global, e);
    for (unsigned i = 0; !rc && i < w->pinned; i++) {
        rc = weights_bytes(c, w->from.files, i, &bytes, e);
        if (!rc) rc = alloc_block(w, bytes, &w->blocks[i], e);
        if (!rc) rc = weights_load_layer(&w->from, i, w->blocks[i], &w->layers[i], e);
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
    return w->buffers ? start_reader(w, e) : OK;
}

enum status weights_open(struct weights **out, struct mem *mem, const struct config *c,
                         const struct safetensors *s, size_t pinned, struct err *e)
{
    *out = NULL;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return err_set(e, E_NOMEM, "weights: no memory");
    w->from = (struct weights_source){mem, c, s};
    w->pinned = pinned;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wanted, NULL);
    pthread_cond_init(&w->done, NULL);
    w->layers = calloc(c->layers, sizeof *w->layers);
    w->blocks = calloc(c->layers, sizeof *w->blocks);
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
    if (w->reading) {
        pthread_mutex_lock(&w->lock);
        w->stop = true;
        pthread_cond_broadcast(&w->wanted);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->reader, NULL);
    }
    for (unsigned i = 0; w->blocks && i < w->from.config->layers; i++)
        mem_free(w->from.mem, w->blocks[i]);
    for (unsigned i = 0; i < 2; i++) mem_free(w->from.mem, w->buffer[i].block);
    mem_free(w->from.mem, w->global_block);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wanted);
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

/* Asks for a layer, into a buffer that is neither in use nor at work. NULL when there is none. */
static struct buffer *ask(struct weights *w, unsigned layer)
{
    struct buffer *b = buffer_of(w, layer);
    if (b) return b;
    for (unsigned i = 0; i < w->buffers; i++) {
        b = &w->buffer[i];
        if (b->in_use || b->state == WANTED || b->state == LOADING) continue;
        b->state = WANTED;
        b->layer = layer;
        pthread_cond_signal(&w->wanted);
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
    while (!(b = ask(w, layer)) || b->state == WANTED || b->state == LOADING)
        pthread_cond_wait(&w->done, &w->lock);
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
    if (!rc) ask(w, next_streamed(w, layer));
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
