/* Writing a model's files anew, so that a kill at any moment leaves only whole ones.
 *
 * The new folder's files are one list: copies, shards, the index. For each there is one function
 * that makes its bytes and hands them to a sink (repack_sink.h), whether to write them, to compare
 * them or to count them. Nothing is remembered between two runs but the files themselves. */
#include "src/repack.h"

#include "src/os_temp.h"
#include "src/repack_layout.h"
#include "src/repack_list.h"
#include "src/repack_sink.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX "model.safetensors.index.json"

struct file {
    char *name;
    enum { COPY, SHARD, THE_INDEX, KINDS } kind; /* in the order of writing */
    size_t shard;
    uint64_t bytes;
    bool there;
};

struct repack {
    const struct repack_opts *o;
    struct repack_state *state;
    struct safetensors *from;
    struct repack_layout *layout;
    struct file *files; /* in order of name */
    size_t n;
    char *chunk, *window; /* REPACK_WINDOW bytes each */
    int lock;
    struct err *e;
};

static enum status no_memory(const struct repack *r)
{
    return err_set(r->e, E_NOMEM, "%s: no memory for its files' names", r->o->to);
}

static char *join(const char *dir, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static enum status put(struct repack *r, struct repack_sink *s, const void *data, size_t len)
{
    enum status rc = repack_sink_put(s, data, len, r->e);
    if (rc || (!s->to && !s->path)) return rc;
    r->state->done += len;
    if (r->o->progress && r->o->progress(r->o->user, r->state))
        return err_set(r->e, E_STOPPED, "stopped; run it again to go on");
    return OK;
}

static enum status emit_copy(struct repack *r, const struct file *f, struct repack_sink *s)
{
    struct os_file from = {.fd = -1};
    char *path = join(r->o->from, f->name);
    enum status rc = path ? os_open(&from, path, false, r->e) : no_memory(r);
    for (uint64_t at = 0; !rc && at < from.size;) {
        uint64_t left = from.size - at;
        size_t n = left < REPACK_WINDOW ? (size_t)left : REPACK_WINDOW;
        rc = os_read_at(&from, at, r->chunk, n, path, r->e);
        if (!rc) rc = put(r, s, r->chunk, n);
        at += n;
    }
    os_close(&from);
    free(path);
    return rc;
}

static enum status emit_zeros(struct repack *r, uint64_t bytes, struct repack_sink *s)
{
    static const char zeros[OS_DIRECT_ALIGN];
    return put(r, s, zeros, (size_t)bytes);
}

/* Reads begin and end at blocks, so that they are direct where they can be. */
static enum status emit_tensor(struct repack *r, const struct tensor_info *t, struct repack_sink *s)
{
    uint64_t at = t->offset, left = t->bytes;
    enum status rc = OK;
    while (!rc && left) {
        size_t before = at % OS_DIRECT_ALIGN, len = REPACK_WINDOW, got;
        if (left < len - before) len = before + (size_t)left + (-(at + left) % OS_DIRECT_ALIGN);
        rc = safetensors_read_raw(r->from, t->file, at - before, r->chunk, len, &got, r->e);
        if (rc) break;
        size_t n = got - before;
        if (n > left) n = (size_t)left;
        rc = put(r, s, r->chunk + before, n);
        at += n;
        left -= n;
    }
    if (rc && rc != E_STOPPED) err_wrap(r->e, "tensor %s", t->name);
    return rc;
}

static enum status emit_shard(struct repack *r, const struct file *f, struct repack_sink *s)
{
    struct buf header = {0};
    struct repack_cursor c;
    struct repack_piece p;
    enum status rc = repack_layout_header(r->layout, f->shard, &header, r->e);
    if (!rc) rc = put(r, s, header.data, header.len);
    buf_free(&header);
    repack_layout_begin(r->layout, f->shard, &c);
    while (!rc && repack_layout_next(r->layout, &c, &p))
        rc = p.t ? emit_tensor(r, p.t, s) : emit_zeros(r, p.bytes, s);
    return rc;
}

static enum status emit_index(struct repack *r, struct repack_sink *s)
{
    struct buf text = {0};
    enum status rc = OK;
    for (size_t i = 0; i < repack_layout_shards(r->layout) && !rc; i++) {
        rc = repack_layout_index(r->layout, i, &text, r->e);
        if (!rc) rc = put(r, s, text.data, text.len);
    }
    buf_free(&text);
    return rc;
}

static enum status emit(struct repack *r, const struct file *f, struct repack_sink *s)
{
    switch (f->kind) {
    case COPY:
        return emit_copy(r, f, s);
    case SHARD:
        return emit_shard(r, f, s);
    default:
        return emit_index(r, s);
    }
}

/* *at: bytes that are equal for sure; *differs: the file is there and readable, but another. */
static enum status compare(struct repack *r, const struct file *f, const char *path, uint64_t *at,
                           bool *differs)
{
    struct repack_sink s;
    r->state->checking = true;
    enum status rc = repack_sink_compare(&s, path, r->window, r->e);
    if (!rc) rc = emit(r, f, &s);
    rc = repack_sink_end(&s, rc, r->e);
    *at = s.at;
    *differs = s.differs;
    return rc;
}

static enum status make_folders(struct repack *r, char *path)
{
    enum status rc = OK;
    for (char *s = path + strlen(r->o->to) + 1; !rc && (s = strchr(s, '/')) != NULL; *s++ = '/') {
        *s = 0;
        rc = os_make_folder(path, r->e);
    }
    return rc;
}

static enum status write_file(struct repack *r, const struct file *f, char *path)
{
    struct os_publish p = {0};
    struct repack_sink s;
    uint64_t at;
    bool differs;
    enum status rc = make_folders(r, path);
    if (!rc) rc = os_publish_begin(&p, path, r->e);
    if (rc) return rc;
    r->state->checking = false;
    repack_sink_write(&s, &p);
    rc = repack_sink_end(&s, emit(r, f, &s), r->e);
    if (!rc) rc = compare(r, f, p.tmp, &at, &differs);
    if (rc) {
        os_publish_abort(&p);
        return rc;
    }
    rc = os_publish_commit(&p, r->e);
    if (!rc) r->state->written++;
    return rc;
}

/* A file of another origin is not ours to overwrite. */
static enum status refuse(struct repack *r, const char *path)
{
    return err_set(r->e, E_USAGE,
                   "%s is not what this repack writes there (another model or shard size?); remove "
                   "it or use another folder",
                   path);
}

/* Compares what is there. A shard whose header is right is ours, and written again when its data
 * are not; *again tells. */
static enum status check_file(struct repack *r, const struct file *f, const char *path, bool *again)
{
    uint64_t at, done = r->state->done;
    bool differs;
    struct repack_cursor c;
    *again = false;
    enum status rc = compare(r, f, path, &at, &differs);
    if (!rc) r->state->kept++;
    if (!differs) return rc;
    if (f->kind != SHARD) return refuse(r, path);
    repack_layout_begin(r->layout, f->shard, &c);
    if (at < c.offset) return refuse(r, path);
    r->state->damaged++;
    r->state->done = done + f->bytes;
    r->state->total += 2 * f->bytes;
    *again = true;
    return unlink(path) ? err_errno(r->e, errno, "cannot remove the damaged %s", path) : OK;
}

static enum status do_file(struct repack *r, const struct file *f)
{
    enum status rc = OK;
    bool write = !f->there;
    char *path = join(r->o->to, f->name);
    if (!path) return no_memory(r);
    r->state->file = f->name;
    if (f->there) rc = check_file(r, f, path, &write);
    if (!rc && write) rc = write_file(r, f, path);
    free(path);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static enum status file_size(struct repack *r, const char *name, uint64_t *bytes)
{
    struct stat st;
    char *path = join(r->o->from, name);
    if (!path) return no_memory(r);
    enum status rc = OK;
    if (stat(path, &st))
        rc = err_errno(r->e, errno, "cannot look at %s", path);
    else
        *bytes = (uint64_t)st.st_size;
    free(path);
    return rc;
}

/* The list of the new folder's files. Takes the names of copies over. */
static enum status list_files(struct repack *r, struct repack_list *copies)
{
    size_t shards = repack_layout_shards(r->layout);
    enum status rc = mem_array(r->o->mem, &r->files, copies->n + shards + 1, sizeof *r->files,
                               "list of files", r->e);
    for (size_t i = 0; i < copies->n && !rc; i++) {
        struct file *f = &r->files[r->n++];
        *f = (struct file){.name = copies->at[i], .kind = COPY};
        copies->at[i] = NULL;
        rc = file_size(r, f->name, &f->bytes);
    }
    for (size_t i = 0; i < shards && !rc; i++) {
        char name[REPACK_NAME_CHARS];
        repack_layout_name(r->layout, i, name);
        struct file *f = &r->files[r->n++];
        *f = (struct file){.name = strdup(name),
                           .kind = SHARD,
                           .shard = i,
                           .bytes = repack_layout_shard_bytes(r->layout, i)};
        if (!f->name) rc = no_memory(r);
    }
    if (rc) return rc;
    struct repack_sink s;
    struct file *f = &r->files[r->n++];
    *f = (struct file){.name = strdup(INDEX), .kind = THE_INDEX};
    if (!f->name) return no_memory(r);
    repack_sink_nowhere(&s);
    rc = emit_index(r, &s);
    f->bytes = s.at;
    qsort(r->files, r->n, sizeof *r->files, by_name);
    return rc;
}

static struct file *find_file(const struct repack *r, char *name)
{
    struct file key = {.name = name};
    return bsearch(&key, r->files, r->n, sizeof key, by_name);
}

/* Where the suffix begins that os_publish gives a file it has not finished; NULL: no such name. */
static char *temporary(char *name)
{
    size_t base = os_temp_base(name);
    return base ? name + base : NULL;
}

/* What the folder holds is ours, whole or unfinished; what is unfinished goes. */
static enum status look_at_folder(struct repack *r)
{
    struct repack_list found;
    enum status rc = repack_list(&found, r->o->to, REPACK_ALL, NULL, r->e);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < found.n && !rc; i++) {
            char *name = found.at[i], *tmp = temporary(name), *path = join(r->o->to, name);
            struct file *f = find_file(r, name);
            if (!path) {
                rc = no_memory(r);
            } else if (f) {
                f->there = true;
            } else {
                if (tmp) *tmp = 0;
                if (!tmp || !find_file(r, name)) rc = refuse(r, path);
                if (tmp) *tmp = '.';
                if (!rc && pass == 1 && unlink(path) != 0)
                    rc = err_errno(r->e, errno, "cannot remove %s", path);
            }
            free(path);
        }
    repack_list_free(&found);
    return rc;
}

/* Room for all that is missing, in blocks of the disk. */
static enum status reserve(struct repack *r)
{
    uint64_t need = 0, room;
    for (size_t i = 0; i < r->n; i++) {
        const struct file *f = &r->files[i];
        r->state->bytes += f->bytes;
        r->state->total += f->there ? f->bytes : 2 * f->bytes;
        if (!f->there) need += f->bytes + (-f->bytes & (OS_DIRECT_ALIGN - 1));
    }
    enum status rc = os_free_bytes(r->o->to, &room, r->e);
    if (!rc && need > room)
        rc = err_set(r->e, E_NOSPACE,
                     "%s needs %" PRIu64 " bytes more, its disk has %" PRIu64 " free", r->o->to,
                     need, room);
    return rc;
}

static bool same_tensor(const struct tensor_info *a, const struct tensor_info *b)
{
    bool same = !strcmp(a->dtype, b->dtype) && a->dims == b->dims && a->bytes == b->bytes;
    for (unsigned i = 0; i < a->dims && same; i++) same = a->shape[i] == b->shape[i];
    return same;
}

/* The new folder, opened as any other, has each tensor where its bytes were compared. */
static enum status check_whole(struct repack *r)
{
    struct safetensors *s;
    size_t n = 0;
    enum status rc = safetensors_open(&s, r->o->to, false, r->e);
    for (size_t i = 0; i < repack_layout_shards(r->layout) && !rc; i++) {
        char name[REPACK_NAME_CHARS];
        struct repack_cursor c;
        struct repack_piece p;
        repack_layout_name(r->layout, i, name);
        repack_layout_begin(r->layout, i, &c);
        while (!rc && repack_layout_next(r->layout, &c, &p)) {
            const struct tensor_info *t = p.t ? safetensors_find(s, p.t->name) : NULL;
            if (!p.t) continue;
            n++;
            if (!t || !same_tensor(t, p.t) || t->offset != p.offset ||
                strcmp(strrchr(safetensors_path(s, t->file), '/') + 1, name) != 0)
                rc = err_set(r->e, E_INTERNAL, "%s/%s: tensor %s is not as it was", r->o->to, name,
                             p.t->name);
        }
    }
    if (!rc && n != safetensors_count(s))
        rc = err_set(r->e, E_INTERNAL, "%s has other tensors", r->o->to);
    safetensors_close(s);
    return rc;
}

/* The new folder, open for us alone. */
static enum status open_folder(struct repack *r)
{
    struct stat from, to;
    if (stat(r->o->to, &to) == 0 && stat(r->o->from, &from) == 0 && from.st_dev == to.st_dev &&
        from.st_ino == to.st_ino)
        return err_set(r->e, E_USAGE, "%s is the model itself", r->o->to);
    enum status rc = os_make_folder(r->o->to, r->e);
    if (rc) return rc;
    /* Some network file systems lock no folders; there it goes without. */
    rc = os_lock(&r->lock, r->o->to, false, r->e);
    return rc == E_LOCKED ? rc : OK;
}

static enum status prepare(struct repack *r)
{
    const struct repack_opts *o = r->o;
    struct repack_list copies = {0};
    enum status rc = safetensors_open(&r->from, o->from, true, r->e);
    if (!rc)
        rc = repack_layout_open(&r->layout, o->mem, r->from,
                                o->shard_bytes ? o->shard_bytes : REPACK_SHARD_BYTES, r->e);
    if (!rc) rc = open_folder(r);
    if (!rc) rc = repack_list(&copies, o->from, REPACK_MODEL, o->to, r->e);
    if (!rc) rc = list_files(r, &copies);
    repack_list_free(&copies);
    if (!rc) rc = look_at_folder(r);
    if (!rc) rc = reserve(r);
    if (!rc)
        rc = mem_alloc_aligned(o->mem, &r->chunk, REPACK_WINDOW, OS_DIRECT_ALIGN, "read buffer",
                               r->e);
    if (!rc)
        rc = mem_alloc_aligned(o->mem, &r->window, REPACK_WINDOW, OS_DIRECT_ALIGN, "read buffer",
                               r->e);
    return rc;
}

enum status repack(const struct repack_opts *o, struct repack_state *state, struct err *e)
{
    struct repack r = {.o = o, .state = state, .lock = -1, .e = e};
    *state = (struct repack_state){0};
    enum status rc = prepare(&r);
    if (!rc) {
        state->files = r.n;
        state->experts = repack_layout_experts(r.layout);
    }
    for (unsigned kind = COPY; kind < KINDS; kind++)
        for (size_t i = 0; i < r.n && !rc; i++)
            if (r.files[i].kind == kind) rc = do_file(&r, &r.files[i]);
    if (!rc) rc = check_whole(&r);
    state->file = "";
    for (size_t i = 0; i < r.n; i++) free(r.files[i].name);
    mem_free(o->mem, r.files);
    mem_free(o->mem, r.chunk);
    mem_free(o->mem, r.window);
    os_unlock(&r.lock);
    repack_layout_close(r.layout);
    safetensors_close(r.from);
    return rc;
}
