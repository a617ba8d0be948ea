/* Where the experts' bytes are, and reading them.
 *
 * Each expert's tensors are looked up once at open and kept by key; all else is worked out from
 * them when needed. In a slot, bytes that are neighbours in a file stay neighbours and come with
 * one read (a run): an expert whose tensors lie back to back is one run, any other has up to six.
 *
 * A run keeps its place within a 4096-byte block, so that a direct read rounded outward lands on
 * aligned memory; files that are not direct have the same layout. Afterwards it is moved down by at
 * most three bytes where the file puts F32 or BF16 at an address that the kernels could not load
 * from.
 *
 * Immutable once open. The bytes themselves belong to the caller. */
#include "src/expert_io.h"

#include "src/os.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { W1, W3, W2, MATRICES };
/* parts of an expert: the matrices' weights, then (MXFP4) their scales */
#define PARTS (2 * MATRICES)

struct place {
    const struct tensor_info *part[PARTS];
};

struct expert_io {
    struct mem *mem;
    const struct safetensors *files;
    const char *name_format;
    struct place *places; /* [layers * experts] */
    enum dtype *types;    /* [layers]; DT_NONE: no routed experts */
    unsigned layers, experts;
    uint32_t out[MATRICES], in[MATRICES];
    uint64_t expert_bytes, slot_bytes;
};

struct run {
    unsigned file;
    uint64_t offset, bytes;
    uint64_t at; /* in the slot, as read; then moved down by shift */
    unsigned shift;
};

struct layout {
    struct run runs[PARTS];
    unsigned n_runs;
    uint64_t at[PARTS]; /* of each part in the slot, after the moves */
    uint64_t bytes;     /* of the slot; whole blocks, so that each run begins with one */
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static unsigned parts_of(enum dtype type)
{
    return type == DT_MXFP4 ? PARTS : MATRICES;
}

static unsigned align_of(enum dtype type)
{
    return type == DT_F32 ? 4 : type == DT_BF16 ? 2 : 1;
}

/* Part numbers by place in the files. */
static void sort_parts(const struct place *p, unsigned n, unsigned order[PARTS])
{
    for (unsigned i = 0; i < n; i++) {
        unsigned j = i;
        for (; j > 0; j--) {
            const struct tensor_info *a = p->part[order[j - 1]], *b = p->part[i];
            if (a->file < b->file || (a->file == b->file && a->offset <= b->offset)) break;
            order[j] = order[j - 1];
        }
        order[j] = i;
    }
}

static void begin_run(struct layout *l, const struct tensor_info *t, unsigned align)
{
    struct run *r = &l->runs[l->n_runs++];
    *r = (struct run){.file = t->file, .offset = t->offset};
    r->at = l->bytes + t->offset % OS_DIRECT_ALIGN;
    r->shift = (unsigned)(r->at % align);
}

static void lay_out(const struct expert_io *x, uint32_t key, struct layout *l)
{
    const struct place *p = &x->places[key];
    enum dtype type = x->types[key / x->experts];
    unsigned n = parts_of(type), order[PARTS] = {0};
    *l = (struct layout){0};
    sort_parts(p, n, order);
    for (unsigned i = 0; i < n; i++) {
        const struct tensor_info *t = p->part[order[i]];
        const struct run *last = l->n_runs ? &l->runs[l->n_runs - 1] : NULL;
        if (!last || last->file != t->file || last->offset + last->bytes != t->offset)
            begin_run(l, t, align_of(type));
        struct run *r = &l->runs[l->n_runs - 1];
        l->at[order[i]] = r->at - r->shift + r->bytes;
        r->bytes += t->bytes;
        l->bytes = round_up(r->at + r->bytes, OS_DIRECT_ALIGN);
    }
}

static enum status bad_tensor(const struct expert_io *x, const struct tensor_info *t,
                              enum dtype type, const uint64_t shape[2], struct err *e)
{
    static const char *const names[] = {
        [DT_F32] = "F32", [DT_BF16] = "BF16", [DT_U8] = "U8", [DT_OTHER] = "another type"};
    char found[TENSOR_MAX_DIMS * 24] = "";
    for (unsigned i = 0, n = 0; i < t->dims; i++)
        n += (unsigned)snprintf(found + n, sizeof found - n, "%s%" PRIu64, i ? ", " : "",
                                t->shape[i]);
    return err_set(e, E_MODEL, "%s: tensor %s is %s [%s], expected %s [%" PRIu64 ", %" PRIu64 "]",
                   safetensors_path(x->files, t->file), t->name, names[t->type], found, names[type],
                   shape[0], shape[1]);
}

/* Finds one tensor and checks it: [out][in] of a type. */
static enum status find_part(const struct expert_io *x, const char *name, enum dtype type,
                             const uint64_t shape[2], const struct tensor_info **part,
                             struct err *e)
{
    const struct tensor_info *t = *part = safetensors_find(x->files, name);
    if (!t) return err_set(e, E_MODEL, "the model has no tensor %s", name);
    if (t->type != type || t->dims != 2 || t->shape[0] != shape[0] || t->shape[1] != shape[1])
        return bad_tensor(x, t, type, shape, e);
    return OK;
}

static enum status find_matrix(struct expert_io *x, const char *prefix, unsigned m, enum dtype type,
                               struct place *p, struct err *e)
{
    static const char *const names[MATRICES] = {"w1", "w3", "w2"};
    char name[256];
    uint64_t shape[2] = {x->out[m], x->in[m]};
    if (type != DT_MXFP4) {
        snprintf(name, sizeof name, "%s%s.weight", prefix, names[m]);
        return find_part(x, name, type, shape, &p->part[m], e);
    }
    snprintf(name, sizeof name, "%s%s.weight_packed", prefix, names[m]);
    shape[1] = x->in[m] / 2;
    enum status rc = find_part(x, name, DT_U8, shape, &p->part[m], e);
    if (rc) return rc;
    snprintf(name, sizeof name, "%s%s.weight_scale", prefix, names[m]);
    shape[1] = x->in[m] / 32;
    return find_part(x, name, DT_U8, shape, &p->part[MATRICES + m], e);
}

/* The form of a layer's experts, told by one of them. */
static enum status find_type(const struct expert_io *x, const char *prefix, enum dtype *type,
                             struct err *e)
{
    char name[256];
    snprintf(name, sizeof name, "%sw1.weight", prefix);
    const struct tensor_info *t = safetensors_find(x->files, name);
    *type = t ? t->type : DT_MXFP4;
    if (t && t->type != DT_F32 && t->type != DT_BF16)
        return err_set(e, E_MODEL, "tensor %s is neither F32 nor BF16", name);
    if (!t && (x->in[W1] % 32 || x->in[W2] % 32))
        return err_set(e, E_MODEL, "there is no tensor %s, and experts of %u x %u cannot be MXFP4",
                       name, x->out[W1], x->in[W1]);
    return OK;
}

static enum status find_expert(struct expert_io *x, unsigned layer, unsigned expert, struct err *e)
{
    char prefix[192];
    snprintf(prefix, sizeof prefix, x->name_format, layer, expert);
    uint32_t key = expert_key(x, layer, expert);
    struct place *p = &x->places[key];
    enum status rc = OK;
    if (expert == 0) rc = find_type(x, prefix, &x->types[layer], e);
    for (unsigned m = 0; m < MATRICES && !rc; m++)
        rc = find_matrix(x, prefix, m, x->types[layer], p, e);
    if (rc) return rc;
    struct layout l;
    lay_out(x, key, &l);
    if (l.bytes > x->slot_bytes) x->slot_bytes = l.bytes;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < parts_of(x->types[layer]); i++) bytes += p->part[i]->bytes;
    if (bytes > x->expert_bytes) x->expert_bytes = bytes;
    return OK;
}

/* Before tables are made for them: there are at least as many tensors as the experts need. */
static enum status check_count(const struct expert_io_opts *o, struct err *e)
{
    uint64_t n = 0, tensors = safetensors_count(o->files);
    for (unsigned l = 0; l < o->layers; l++) n += o->is_moe[l] ? o->experts : 0;
    if (n > tensors / MATRICES)
        return err_set(e, E_MODEL,
                       "the model has %" PRIu64 " tensors, its %" PRIu64
                       " experts need at least three each",
                       tensors, n);
    if ((uint64_t)o->layers * o->experts > UINT32_MAX)
        return err_set(e, E_MODEL, "%u layers of %u experts are too many", o->layers, o->experts);
    return OK;
}

enum status expert_io_open(struct expert_io **out, const struct expert_io_opts *o, struct err *e)
{
    *out = NULL;
    struct expert_io *x;
    enum status rc = check_count(o, e);
    if (rc) return rc;
    rc = mem_alloc(o->mem, &x, sizeof *x, "expert table", e);
    if (rc) return rc;
    *x = (struct expert_io){.mem = o->mem,
                            .files = o->files,
                            .layers = o->layers,
                            .experts = o->experts,
                            .out = {[W1] = o->width, [W3] = o->width, [W2] = o->in},
                            .in = {[W1] = o->in, [W3] = o->in, [W2] = o->width}};
    rc = mem_array(o->mem, &x->places, (size_t)o->layers * o->experts, sizeof *x->places,
                   "expert table", e);
    if (rc) goto out;
    rc = mem_array(o->mem, &x->types, o->layers, sizeof *x->types, "expert table", e);
    if (rc) goto out;
    x->name_format = o->name_format;
    for (unsigned l = 0; l < o->layers; l++)
        for (unsigned i = 0; i < (o->is_moe[l] ? o->experts : 0) && !rc; i++)
            rc = find_expert(x, l, i, e);
out:
    if (rc)
        expert_io_close(x);
    else
        *out = x;
    return rc;
}

void expert_io_close(struct expert_io *x)
{
    if (!x) return;
    struct mem *mem = x->mem;
    mem_free(mem, x->places);
    mem_free(mem, x->types);
    mem_free(mem, x);
}

uint32_t expert_key(const struct expert_io *x, unsigned layer, unsigned expert)
{
    assert(layer < x->layers && expert < x->experts);
    return layer * x->experts + expert;
}

uint64_t expert_bytes(const struct expert_io *x)
{
    return x->expert_bytes;
}

uint64_t expert_slot_bytes(const struct expert_io *x)
{
    return x->slot_bytes;
}

static enum status read_run(const struct expert_io *x, const struct run *r, char *slot,
                            struct err *e)
{
    uint64_t before = 0, len = r->bytes;
    if (safetensors_direct(x->files, r->file)) {
        before = r->offset % OS_DIRECT_ALIGN;
        len = round_up(before + len, OS_DIRECT_ALIGN);
    }
    size_t got;
    enum status rc = safetensors_read_raw(x->files, r->file, r->offset - before,
                                          slot + r->at - before, len, &got, e);
    assert(rc || got >= before + r->bytes);
    if (!rc && r->shift) memmove(slot + r->at - r->shift, slot + r->at, r->bytes);
    return rc;
}

static enum status check_scales(const struct expert_io *x, const struct place *p,
                                const struct layout *l, const char *slot, struct err *e)
{
    for (unsigned i = MATRICES; i < PARTS; i++)
        if (memchr(slot + l->at[i], 255, p->part[i]->bytes))
            return err_set(e, E_MODEL, "%s: tensor %s holds the scale code 255 (not a number)",
                           safetensors_path(x->files, p->part[i]->file), p->part[i]->name);
    return OK;
}

bool expert_io_run(const struct expert_io *x, uint32_t key, unsigned i, unsigned *file,
                   uint64_t *offset, uint64_t *bytes)
{
    struct layout l;
    lay_out(x, key, &l);
    if (i >= l.n_runs) return false;
    *file = l.runs[i].file;
    *offset = l.runs[i].offset;
    *bytes = l.runs[i].bytes;
    return true;
}

enum status expert_io_fetch(void *user, uint32_t key, void *dst, size_t *at, struct err *e)
{
    const struct expert_io *x = user;
    unsigned layer = key / x->experts, expert = key % x->experts;
    assert(layer < x->layers && x->types[layer] != DT_NONE);
    assert((uintptr_t)dst % OS_DIRECT_ALIGN == 0);
    struct layout l;
    lay_out(x, key, &l);
    enum status rc = OK;
    for (unsigned i = 0; i < l.n_runs && !rc; i++) rc = read_run(x, &l.runs[i], dst, e);
    if (!rc && x->types[layer] == DT_MXFP4) rc = check_scales(x, &x->places[key], &l, dst, e);
    if (rc) err_wrap(e, "layer %u expert %u", layer, expert);
    *at = l.at[W1];
    return rc;
}

void expert_weights_at(const struct expert_io *x, uint32_t key, const void *data,
                       struct expert_weights *w)
{
    struct linear *const to[MATRICES] = {[W1] = &w->w1, [W3] = &w->w3, [W2] = &w->w2};
    enum dtype type = x->types[key / x->experts];
    struct layout l;
    lay_out(x, key, &l);
    const char *slot = (const char *)data - l.at[W1];
    for (unsigned m = 0; m < MATRICES; m++)
        *to[m] = (struct linear){
            .type = type,
            .out = x->out[m],
            .in = x->in[m],
            .w = slot + l.at[m],
            .scale = type == DT_MXFP4 ? (const uint8_t *)slot + l.at[MATRICES + m] : NULL,
        };
}
