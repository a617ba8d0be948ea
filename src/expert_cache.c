/* A bounded cache of expert records, with readers that run ahead of use.
 *
 * A slot is free, being read, or ready; a ready one may be borrowed. Slots that are borrowed or
 * being read are busy and never move. Readers work through the announced keys; a key that is
 * announced and not yet got is wanted, and readers never evict a wanted record: they stop instead.
 *
 * A get cannot starve: readers leave one slot that is not busy, and take none while a get waits for
 * one; a get takes any slot that is not busy, wanted or not; and what is busy ends by itself (a
 * read) or by contract (a borrowed record is released).
 *
 * The lock guards every field of the cache and its slots. It is dropped during fetch: the slot is
 * marked as being read, so nobody else touches its bytes. */
#include "src/expert_cache.h"

#include "src/expert_heat.h"
#include "src/os.h"

#include <assert.h>
#include <string.h>

struct slot {
    enum { FREE, READING, READY } state;
    uint32_t key; /* when not FREE */
    unsigned borrowed;
    bool ahead; /* fetched by a reader, not got since */
    size_t at;  /* the record begins here */
    char *bytes;
};

struct expert_cache {
    struct expert_cache_opts o;
    char *bytes; /* of all slots */
    struct slot *slots;
    struct slot **slot_of; /* [keys] or NULL */
    uint32_t *announced;   /* [keys], n_announced of them; readers are at `next` */
    size_t n_announced, next;
    uint32_t *wanted; /* [keys] place in the announcement + 1 while announced and not got, else 0 */
    struct expert_heat heat;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot became ready, free or not busy */
    size_t busy;
    size_t ahead, ahead_max; /* slots that are wanted and `ahead`; the most of them */
    unsigned waiting;        /* gets that found every slot busy */
    struct expert_cache_stats stats;
};

static void tell(struct expert_cache *c)
{
    pthread_cond_broadcast(&c->changed);
    if (c->next < c->n_announced) readers_wake(c->o.readers);
}

/* What a slot's record is worth keeping: wanted ones most, the sooner the more. */
static double worth(const struct expert_cache *c, const struct slot *s)
{
    if (s->state == FREE) return -1;
    uint32_t place = c->wanted[s->key];
    return place ? 1e12 - place : expert_heat_worth(&c->heat, s->key);
}

/* The slot to use next; NULL when all are busy (or wanted, for a reader). */
static struct slot *victim(const struct expert_cache *c, bool reader)
{
    struct slot *best = NULL;
    double least = 0;
    for (size_t i = 0; i < c->o.slots; i++) {
        struct slot *s = &c->slots[i];
        if (s->state == READING || s->borrowed) continue;
        if (reader && s->state == READY && c->wanted[s->key]) continue;
        double w = worth(c, s);
        if (!best || w < least) {
            best = s;
            least = w;
        }
    }
    return best;
}

/* The slot no longer holds a record read ahead of use. */
static void end_ahead(struct expert_cache *c, struct slot *s)
{
    if (s->ahead && c->wanted[s->key]) c->ahead--;
    s->ahead = false;
}

static void take(struct expert_cache *c, struct slot *s, uint32_t key)
{
    if (s->state == READY) {
        c->slot_of[s->key] = NULL;
        c->stats.wasted += s->ahead;
        end_ahead(c, s);
    }
    s->state = READING;
    s->key = key;
    c->slot_of[key] = s;
    c->busy++;
}

/* Reads the record of a slot that was taken, without the lock meanwhile. */
static enum status fill(struct expert_cache *c, struct slot *s, struct err *e)
{
    uint32_t key = s->key;
    size_t at = 0;
    c->stats.fetches++;
    pthread_mutex_unlock(&c->lock);
    readers_begin(c->o.readers);
    enum status rc = c->o.fetch(c->o.user, key, s->bytes, &at, e);
    readers_end(c->o.readers);
    pthread_mutex_lock(&c->lock);
    assert(rc || at < c->o.slot_bytes);
    s->at = at;
    s->state = rc ? FREE : READY;
    c->busy--;
    if (rc) {
        c->slot_of[key] = NULL;
        end_ahead(c, s);
    }
    tell(c);
    return rc;
}

/* Takes a slot for the next announced key; NULL when there is nothing to read, or no room. */
static struct slot *take_ahead(struct expert_cache *c)
{
    for (; c->next < c->n_announced; c->next++) {
        uint32_t key = c->announced[c->next];
        if (c->slot_of[key] || !c->wanted[key]) continue;
        if (c->waiting || c->ahead >= c->ahead_max || c->busy + 1 >= c->o.slots) return NULL;
        struct slot *s = victim(c, true);
        if (!s) return NULL;
        take(c, s, key);
        s->ahead = true;
        c->ahead++;
        c->next++;
        return s;
    }
    return NULL;
}

/* A readers_fn. */
static bool read_ahead(void *cache)
{
    struct expert_cache *c = cache;
    struct err ignored;
    pthread_mutex_lock(&c->lock);
    struct slot *s = take_ahead(c);
    if (s && fill(c, s, &ignored) == OK) c->stats.fetched_ahead++;
    pthread_mutex_unlock(&c->lock);
    return s != NULL;
}

static enum status alloc_slots(struct expert_cache *c, struct err *e)
{
    const struct expert_cache_opts *o = &c->o;
    size_t stride = (o->slot_bytes + OS_DIRECT_ALIGN - 1) / OS_DIRECT_ALIGN * OS_DIRECT_ALIGN, all;
    if (stride < o->slot_bytes || __builtin_mul_overflow(stride, o->slots, &all))
        return err_set(e, E_BUDGET, "expert cache: %zu slots of %zu bytes", o->slots,
                       o->slot_bytes);
    enum status rc = mem_alloc_aligned(o->mem, &c->bytes, all, OS_DIRECT_ALIGN, "expert cache", e);
    if (rc) return rc;
    rc = mem_array(o->mem, &c->slots, o->slots, sizeof *c->slots, "expert cache", e);
    if (rc) return rc;
    for (size_t i = 0; i < o->slots; i++) c->slots[i].bytes = c->bytes + i * stride;
    return OK;
}

size_t expert_cache_ahead(size_t slots, unsigned readers)
{
    size_t least = 2 * (size_t)readers;
    return slots / 16 > least ? slots / 16 : least;
}

enum status expert_cache_open(struct expert_cache **out, const struct expert_cache_opts *o,
                              struct err *e)
{
    *out = NULL;
    assert(o->slots >= 2);
    struct expert_cache *c;
    enum status rc = mem_alloc(o->mem, &c, sizeof *c, "expert cache", e);
    if (rc) return rc;
    c->o = *o;
    c->ahead_max = expert_cache_ahead(o->slots, readers_threads(o->readers));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    const struct {
        void *p;
        size_t n, size;
    } arrays[] = {
        {&c->slot_of, o->keys, sizeof(void *)},
        {&c->announced, o->keys, sizeof *c->announced},
        {&c->wanted, o->keys, sizeof *c->wanted},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !rc; i++)
        rc = mem_array(o->mem, arrays[i].p, arrays[i].n, arrays[i].size, "expert cache", e);
    if (!rc) rc = expert_heat_init(&c->heat, o->mem, o->keys, e);
    if (!rc) rc = alloc_slots(c, e);
    if (rc) {
        expert_cache_close(c);
        return rc;
    }
    if (o->readers) readers_add(o->readers, READERS_EXPERTS, read_ahead, c);
    *out = c;
    return OK;
}

void expert_cache_close(struct expert_cache *c)
{
    if (!c) return;
    struct mem *mem = c->o.mem;
    readers_remove(c->o.readers, READERS_EXPERTS);
    assert(c->busy == 0);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    expert_heat_free(&c->heat);
    mem_free(mem, c->slot_of);
    mem_free(mem, c->announced);
    mem_free(mem, c->wanted);
    mem_free(mem, c->slots);
    mem_free(mem, c->bytes);
    mem_free(mem, c);
}

void expert_cache_announce(struct expert_cache *c, const uint32_t *keys, size_t n)
{
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n_announced; i++) c->wanted[c->announced[i]] = 0;
    c->n_announced = n < c->o.keys ? n : c->o.keys;
    c->next = c->ahead = 0;
    for (size_t i = 0; i < c->n_announced; i++) {
        uint32_t key = c->announced[i] = keys[i];
        assert(key < c->o.keys);
        if (c->wanted[key]) continue;
        c->wanted[key] = (uint32_t)i + 1;
        c->ahead += c->slot_of[key] && c->slot_of[key]->ahead;
    }
    tell(c);
    pthread_mutex_unlock(&c->lock);
}

/* Waits for, or reads, the record of a key. With the lock. */
static enum status bring(struct expert_cache *c, uint32_t key, struct err *e)
{
    for (;;) {
        struct slot *s = c->slot_of[key];
        if (s && s->state == READY) return OK;
        if (!s && (s = victim(c, false))) {
            take(c, s, key);
            return fill(c, s, e);
        }
        c->waiting += !s;
        pthread_cond_wait(&c->changed, &c->lock);
        c->waiting -= !s;
    }
}

enum status expert_cache_get(struct expert_cache *c, uint32_t key, const void **out, struct err *e)
{
    assert(key < c->o.keys);
    *out = NULL;
    enum status rc = OK;
    pthread_mutex_lock(&c->lock);
    c->stats.gets++;
    if (c->slot_of[key] && c->slot_of[key]->state == READY) {
        c->stats.hits++;
    } else {
        double since = os_now();
        rc = bring(c, key, e);
        c->stats.wait_s += os_now() - since;
    }
    if (!rc) {
        struct slot *s = c->slot_of[key];
        end_ahead(c, s);
        c->wanted[key] = 0;
        c->busy += !s->borrowed++;
        expert_heat_use(&c->heat, key);
        *out = s->bytes + s->at;
    }
    tell(c);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

bool expert_cache_ready(struct expert_cache *c, uint32_t key)
{
    pthread_mutex_lock(&c->lock);
    bool ready = c->slot_of[key] && c->slot_of[key]->state == READY;
    pthread_mutex_unlock(&c->lock);
    return ready;
}

void expert_cache_release(struct expert_cache *c, uint32_t key)
{
    pthread_mutex_lock(&c->lock);
    struct slot *s = c->slot_of[key];
    assert(s && s->state == READY && s->borrowed);
    c->busy -= !--s->borrowed;
    if (!s->borrowed) tell(c);
    pthread_mutex_unlock(&c->lock);
}

void expert_cache_tick(struct expert_cache *c)
{
    pthread_mutex_lock(&c->lock);
    expert_heat_tick(&c->heat);
    pthread_mutex_unlock(&c->lock);
}

void expert_cache_stats(struct expert_cache *c, struct expert_cache_stats *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}
