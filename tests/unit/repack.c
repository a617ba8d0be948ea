/* repack: the same tensors in files whose experts begin at blocks and come with one read; safe from
 * other files, damage, kills. */
#include "src/repack.h"

#include "jobs/model_id.h"
#include "src/expert_io.h"
#include "src/os.h"
#include "src/os_temp.h"
#include "tests/lib/expert_file.h"
#include "tests/lib/repack_model.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARD 50000
#define LARGE 150000 /* six shards instead of 17 */

static struct err e;
static struct repack_state state;

static const char *in(const char *dir, const char *name)
{
    static char path[4][512];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

struct range {
    const char *name;
    uint64_t begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static unsigned element(const char *dtype)
{
    static const char *const wide[] = {"1 U8 F8_E4M3", "2 BF16 F16", "4 F32", "8 I64"};
    for (size_t i = 0; i < 4; i++)
        if (strstr(wide[i], dtype)) return (unsigned)(wide[i][0] - '0');
    return 1000;
}

/* The rules of the format for one file, checked without our reader: tensors follow each other
 * without holes from the first byte to the last, each aligned for its type, and so is the data.
 * Padding tensors are numbered through all files; counts them. */
static bool well_formed(const char *path, size_t *pads)
{
    size_t len, n = 0;
    char *file = test_read(path, &len);
    uint64_t header;
    if (!file || len < 8) return false;
    memcpy(&header, file, 8);
    bool good = header < len && file[8] == '{' && (8 + header) % OS_DIRECT_ALIGN == 0;
    cJSON *json = good ? cJSON_ParseWithLength(file + 8, header) : NULL;
    struct range ranges[400] = {0};
    for (const cJSON *t = json ? json->child : NULL; t; t = t->next) {
        const cJSON *at = cJSON_GetObjectItem(t, "data_offsets");
        if (!strcmp(t->string, "__metadata__")) continue;
        struct range *r = &ranges[n++];
        *r = (struct range){t->string, (uint64_t)at->child->valuedouble,
                            (uint64_t)at->child->next->valuedouble};
        good &= r->begin % element(cJSON_GetObjectItem(t, "dtype")->valuestring) == 0;
        if (!strncmp(t->string, "__pad__.", 8))
            good &= strtoul(t->string + 8, NULL, 10) == (*pads)++;
    }
    qsort(ranges, n, sizeof *ranges, by_begin);
    for (size_t i = 0; i < n; i++) good &= ranges[i].begin == (i ? ranges[i - 1].end : 0);
    good &= n > 0 && 8 + header + ranges[n - 1].end == len;
    cJSON_Delete(json);
    free(file);
    return good;
}

/* Reads that one fetch needs, found by failing the n-th for good until none fails. */
static int reads_of(struct expert_io *x, uint32_t key, char *slot)
{
    for (int n = 0;; n++) {
        size_t at;
        os_fault(OS_FAULT_READ, n, true);
        enum status rc = expert_io_fetch(x, key, slot, &at, &e);
        os_fault(OS_FAULT_READ, -1, false);
        if (!rc) return n;
    }
}

struct place {
    unsigned file;
    uint64_t offset;
};

/* Where an expert's six or three tensors lie: back to back in order of name. */
static bool place_of(const struct safetensors *s, unsigned layer, unsigned expert, struct place *p)
{
    static const char *const parts[][6] = {{"w1.weight_packed", "w1.weight_scale",
                                            "w2.weight_packed", "w2.weight_scale",
                                            "w3.weight_packed", "w3.weight_scale"},
                                           {"w1.weight", "w2.weight", "w3.weight"}};
    uint64_t at = 0;
    for (int i = 0; i < 6 && parts[layer - 1][i]; i++) {
        char name[128];
        snprintf(name, sizeof name, EXPERT_NAME "%s", layer, expert, parts[layer - 1][i]);
        const struct tensor_info *t = safetensors_find(s, name);
        if (!t || (i && (t->file != p->file || t->offset != at))) return false;
        if (!i) *p = (struct place){t->file, t->offset};
        at = t->offset + t->bytes;
    }
    return p->offset % OS_DIRECT_ALIGN == 0;
}

/* Every expert begins at a block, its tensors in order, experts by layer and number. */
TEST(experts_in_order)
{
    const char *from = repack_model("order"), *to = test_path("order-new");
    struct safetensors *s;
    struct place last = {0}, p = {0};
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    CHECK_INT(state.experts, 2 * RM_EXPERTS);
    CHECK_OK(safetensors_open(&s, to, false, &e), e);
    for (unsigned l = 1; l < RM_LAYERS; l++)
        for (unsigned i = 0; i < RM_EXPERTS; i++) {
            CHECK(place_of(s, l, i, &p));
            CHECK(p.file > last.file || (p.file == last.file && p.offset > last.offset));
            last = p;
        }
    safetensors_close(s);
}

/* Two stacks of layers with the same numbers: the experts of both begin at blocks. */
TEST(two_stacks)
{
    const char *from = st_dir("stacks"), *to = test_path("stacks-new");
    struct st_file f = {0};
    struct safetensors *s;
    char name[64];
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%s.layers.1.experts.%d.w%d", i & 1 ? "text" : "next", i / 4,
                 i / 2 % 2);
        st_add(&f, name, "U8", "[5]", "12345", 5);
    }
    st_write(&f, from, "model.safetensors", 0);
    CHECK_OK(repack_model_run(from, to, 0, &state, &e), e);
    CHECK_INT(state.experts, 4);
    CHECK_OK(safetensors_open(&s, to, false, &e), e);
    for (size_t i = 0; i < 8; i++) {
        const struct tensor_info *t = safetensors_at(s, i);
        CHECK_INT(t->offset % OS_DIRECT_ALIGN, strstr(t->name, "w0") ? 0 : 5);
    }
    safetensors_close(s);
}

/* An expert needs one read, in a slot no larger than its blocks. */
TEST(one_read)
{
    const char *from = repack_model("reads"), *to = test_path("reads-new");
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    for (int i = 0; i < 4; i++) {
        struct mem mem;
        struct safetensors *s;
        struct expert_io *x;
        char *slot;
        mem_init(&mem, 0);
        CHECK_OK(safetensors_open(&s, i & 1 ? to : from, i & 2, &e), e);
        struct expert_io_opts o = {&mem,      s,          EXPERT_NAME, (uint8_t[]){0, 1, 1},
                                   RM_LAYERS, RM_EXPERTS, RM_IN,       RM_WIDTH};
        CHECK_OK(expert_io_open(&x, &o, &e), e);
        CHECK_OK(mem_alloc_aligned(&mem, &slot, expert_slot_bytes(x), OS_DIRECT_ALIGN, "", &e), e);
        int reads = 0;
        for (unsigned k = 0; k < 2 * RM_EXPERTS; k++) reads += reads_of(x, RM_EXPERTS + k, slot);
        if (i & 1) {
            CHECK_INT(reads, 2 * RM_EXPERTS);
            CHECK(expert_slot_bytes(x) - expert_bytes(x) < OS_DIRECT_ALIGN);
        } else {
            CHECK(reads >= 7 * RM_EXPERTS);
        }
        mem_free(&mem, slot);
        expert_io_close(x);
        safetensors_close(s);
        mem_close(&mem);
    }
}

/* The same tensors, whatever their names, types and sizes, in files without holes and no larger
 * than asked for. */
TEST(same_tensors)
{
    const char *from = repack_model("same");
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t sizes[] = {1, SHARD, 150000, 0};
        const size_t files[] = {9 + 2 * RM_EXPERTS, 17, 6, 2};
        char name[32];
        snprintf(name, sizeof name, "same-new%u", i);
        const char *to = test_path(name);
        size_t pads = 0;
        struct safetensors *s;
        CHECK_OK(repack_model_run(from, to, sizes[i], &state, &e), e);
        CHECK(repack_model_same(from, to));
        CHECK_OK(safetensors_open(&s, to, false, &e), e);
        for (unsigned f = 0; f < safetensors_files(s); f++) {
            struct stat st;
            CHECK(well_formed(safetensors_path(s, f), &pads));
            CHECK(stat(safetensors_path(s, f), &st) == 0);
            CHECK(i == 0 || i == 3 || (uint64_t)st.st_size <= sizes[i]);
        }
        /* 9792 bytes fill no blocks, 36864 do: nine */
        CHECK_INT(pads, RM_EXPERTS);
        CHECK_INT(safetensors_files(s), files[i]);
        safetensors_close(s);
    }
}

/* The index names every tensor's file, and no padding. */
TEST(index)
{
    const char *from = repack_model("index"), *to = test_path("index-new");
    struct safetensors *s;
    char *text;
    int n = 0;
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    CHECK_OK(safetensors_open(&s, to, false, &e), e);
    text = test_read(in(to, "model.safetensors.index.json"), NULL);
    cJSON *json = cJSON_Parse(text), *map = cJSON_GetObjectItem(json, "weight_map");
    for (const cJSON *c = map->child; c; c = c->next, n++) {
        const struct tensor_info *t = safetensors_find(s, c->string);
        CHECK(t && !strcmp(strrchr(safetensors_path(s, t->file), '/') + 1, c->valuestring));
    }
    CHECK_INT(n, safetensors_count(s));
    uint64_t bytes = 0;
    for (size_t i = 0; i < safetensors_count(s); i++) bytes += safetensors_at(s, i)->bytes;
    CHECK_INT(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "metadata"), "total_size")->valuedouble,
              bytes);
    cJSON_Delete(json);
    free(text);
    safetensors_close(s);
}

/* Everything else comes along, but for hidden folders and weights that the model does not use; the
 * new folder may lie in the old. */
TEST(other_files)
{
    const char *from = repack_model("others"), *to = test_path("others/new");
    CHECK_OK(repack_model_run(from, to, 0, &state, &e), e);
    CHECK(os_exists(in(to, "config.json")) && os_exists(in(to, ".gitattributes")));
    CHECK(os_exists(in(to, "docs/more/empty")));
    CHECK(!os_exists(in(to, ".git")) && !os_exists(in(to, "stray.safetensors")));
    CHECK(!os_exists(in(to, "new")));
    CHECK_INT(state.files, 6);
    CHECK_INT(state.written, 6);
    char *text = test_read(in(to, "config.json"), NULL);
    CHECK_STR(text, "{\"a\": 1}\n");
    free(text);
    CHECK_OK(repack_model_run(from, to, 0, &state, &e), e);
    CHECK_INT(state.kept, 6);
    CHECK_INT(state.files, 6);
}

/* A repacked model repacked is the same files: padding does not grow. */
TEST(again_from_the_new)
{
    const char *from = repack_model("twice"), *to = test_path("twice-new");
    const char *third = test_path("twice-third");
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    CHECK_OK(repack_model_run(to, third, SHARD, &state, &e), e);
    CHECK(repack_model_same_files(to, third));
}

/* A second run writes nothing; the identity is the model's, but not another's. */
TEST(finished)
{
    const char *from = repack_model("finished"), *to = test_path("finished-new");
    char old[65], new[65];
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    CHECK_INT(state.written, 0);
    CHECK_INT(state.kept, state.files);
    CHECK_INT(state.done, state.total);
    CHECK_INT(state.done, state.bytes);
    CHECK_OK(model_id(from, old, &e), e);
    CHECK_OK(model_id(to, new, &e), e);
    CHECK_STR(new, old);
    test_write(in(to, "config.json"), "{}", 2);
    CHECK_OK(model_id(to, new, &e), e);
    CHECK(strcmp(new, old) != 0);
}

static void damage(const char *path, long offset, const char *mode)
{
    FILE *f = fopen(path, mode);
    if (!f || fseek(f, offset, offset < 0 ? SEEK_END : SEEK_SET) != 0) abort();
    int c = fgetc(f);
    if (fseek(f, c == EOF ? 0 : -1, SEEK_CUR) != 0 || fputc(c ^ 1, f) == EOF || fclose(f)) abort();
}

/* A shard that lost a byte, has one too many or a wrong one is written again; nothing else is. */
TEST(damaged_shards)
{
    const char *from = repack_model("damaged"), *to = test_path("damaged-new");
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    damage(in(to, "model-00002-of-00017.safetensors"), -1, "r+b");
    damage(in(to, "model-00003-of-00017.safetensors"), 8192, "r+b");
    damage(in(to, "model-00004-of-00017.safetensors"), 1l << 20, "r+b");
    CHECK(truncate(in(to, "model-00005-of-00017.safetensors"), 20000) == 0);
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    CHECK_INT(state.damaged, 4);
    CHECK_INT(state.written, 4);
    CHECK_INT(state.kept, state.files - 4);
    CHECK_INT(state.done, state.total);
    CHECK(repack_model_same(from, to));
}

/* What is not ours is not touched: other files, other shard sizes, other models. */
TEST(refused)
{
    const char *from = repack_model("refused"), *to = test_path("refused-new");
    const char *other = st_dir("refused-other");
    CHECK_ERR(repack_model_run(from, from, 0, &state, &e), E_USAGE, e, "is the model itself");
    CHECK(symlink(from, test_path("refused-link")) == 0);
    CHECK_ERR(repack_model_run(from, test_path("refused-link"), 0, &state, &e), E_USAGE, e,
              "is the model itself");
    test_write(in(other, "notes.tmp0123abcd-7"), "mine", 4);
    CHECK_ERR(repack_model_run(from, other, 0, &state, &e), E_USAGE, e,
              "notes.tmp0123abcd-7 is not what");
    CHECK(os_exists(in(other, "notes.tmp0123abcd-7")) && !os_exists(in(other, "config.json")));
    CHECK_OK(repack_model_run(from, to, SHARD, &state, &e), e);
    CHECK_ERR(repack_model_run(from, to, 0, &state, &e), E_USAGE, e, "00017.safetensors is not");
    test_write(in(to, "config.json"), "{\"a\": 2}\n", 9);
    CHECK_ERR(repack_model_run(from, to, SHARD, &state, &e), E_USAGE, e, "config.json is not");
    test_write(in(to, "config.json"), "{\"a\": 1}\n", 9);
    damage(in(to, "model-00002-of-00017.safetensors"), 100, "r+b");
    CHECK_ERR(repack_model_run(from, to, SHARD, &state, &e), E_USAGE, e, "00002-of-00017");
    CHECK_INT(state.damaged, 0);
    damage(in(to, "model-00002-of-00017.safetensors"), 100, "r+b");
    damage(in(to, "model.safetensors.index.json"), -1, "r+b");
    CHECK_ERR(repack_model_run(from, to, SHARD, &state, &e), E_USAGE, e, "index.json is not");
    CHECK_ERR(repack_model_run(test_path("refused-none"), other, 0, &state, &e), E_MODEL, e,
              "refused-none");
}

/* Names have digits for so many files. */
TEST(too_many_files)
{
    const char *from = st_dir("many");
    struct st_file f = {0};
    for (int i = 0; i < 100000; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        st_add(&f, name, "U8", "[1]", "x", 1);
    }
    st_write(&f, from, "model.safetensors", 0);
    CHECK_ERR(repack_model_run(from, test_path("many-new"), 1, &state, &e), E_USAGE, e,
              "make more than 99999 files");
    CHECK(!os_exists(test_path("many-new")));
}

/* Two at once: the second is told so. */
TEST(locked)
{
    const char *from = repack_model("locked"), *to = st_dir("locked-new");
    int lock;
    CHECK_OK(os_lock(&lock, to, false, &e), e);
    CHECK_ERR(repack_model_run(from, to, 0, &state, &e), E_LOCKED, e, "locked-new");
    os_unlock(&lock);
    CHECK_OK(repack_model_run(from, to, 0, &state, &e), e);
}

struct steps {
    const char *dir;
    int left; /* steps until something happens */
    enum { STOP, KILL, SPOIL } what;
};

/* Turns one bit of the unfinished file while it is compared. */
static void spoil(const char *dir, const char *file)
{
    char path[600], suffix[OS_TEMP_CHARS];
    os_temp_suffix(suffix);
    snprintf(path, sizeof path, "%s/%s%s", dir, file, suffix);
    damage(path, -1, "r+b");
}

static bool step(void *user, const struct repack_state *s)
{
    struct steps *t = user;
    if (t->what == SPOIL) {
        if (s->checking && strstr(s->file, "00002-of") && t->left-- == 0) spoil(t->dir, s->file);
        return false;
    }
    if (t->left-- > 0) return false;
    if (t->what == KILL) raise(SIGKILL);
    return true;
}

static enum status run_steps(const char *from, struct steps *t)
{
    struct mem mem;
    mem_init(&mem, 0);
    struct repack_opts o = {&mem, from, t->dir, LARGE, step, t};
    enum status rc = repack(&o, &state, &e);
    mem_close(&mem);
    return rc;
}

/* Bytes that change on the way to the disk are noticed, and the file never gets its name. */
TEST(wrong_bytes_on_disk)
{
    const char *from = st_dir("wrong"), *to = test_path("wrong-new");
    struct st_file f = {0};
    st_add(&f, "small", "U8", "[1]", "s", 1);
    char *large = calloc(1, 5 << 20);
    st_add(&f, "large", "U8", "[5242880]", large, 5 << 20);
    free(large);
    st_write(&f, from, "model.safetensors", 0);
    CHECK_ERR(run_steps(from, &(struct steps){to, 0, SPOIL}), E_IO, e, "tensor large: ");
    CHECK_HAS(e.text, "differs at byte 5246975 of 5246976");
    CHECK(os_exists(in(to, "model-00001-of-00002.safetensors")));
    CHECK(!os_exists(in(to, "model-00002-of-00002.safetensors")));
    CHECK_OK(repack_model_run(from, to, LARGE, &state, &e), e);
    CHECK(repack_model_same(from, to));
}

/* Stopped at every n-th step, it goes on and ends with the same files; until then there is no
 * index. */
TEST(stopped)
{
    const char *from = repack_model("stopped"), *to = test_path("stopped-new");
    const char *whole = test_path("stopped-whole");
    enum status rc = E_STOPPED;
    int runs = 0;
    CHECK_OK(repack_model_run(from, whole, LARGE, &state, &e), e);
    while (rc && runs++ < 1000) {
        rc = run_steps(from, &(struct steps){to, 20 * runs, STOP});
        if (rc) CHECK_ERR(rc, E_STOPPED, e, "run it again");
        if (rc) CHECK(!os_exists(in(to, "model.safetensors.index.json")));
    }
    CHECK(runs > 5);
    CHECK(repack_model_same_files(whole, to));
}

static bool killed(const char *from, struct steps *t)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(run_steps(from, t) ? 1 : 0);
    return pid < 0 || waitpid(pid, &status, 0) != pid || WIFSIGNALED(status);
}

/* Killed at every step in turn, each time going on from what the last left behind. */
TEST(killed_at_every_step)
{
    const char *from = repack_model("killed"), *to = test_path("killed-new");
    const char *whole = test_path("killed-whole");
    int runs = 0;
    CHECK_OK(repack_model_run(from, whole, LARGE, &state, &e), e);
    while (killed(from, &(struct steps){to, runs, KILL})) CHECK(runs++ < 5000);
    CHECK(runs > 100);
    CHECK(repack_model_same_files(whole, to));
}

TEST_MAIN
