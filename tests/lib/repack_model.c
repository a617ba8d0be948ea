/* The model that tests repack. */
#include "tests/lib/repack_model.h"

#include "src/safetensors.h"
#include "tests/lib/expert_file.h"
#include "tests/lib/test.h"

#include <sys/stat.h>

static void add_random(struct st_file *f, const char *name, const char *dtype, const char *shape,
                       size_t bytes)
{
    unsigned long long seed = bytes + (unsigned char)name[0] + 31 * strlen(name);
    unsigned char *data = malloc(bytes + 1);
    if (!data) abort();
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)test_rand(&seed);
    st_add(f, name, dtype, shape, data, bytes);
    free(data);
}

static void add_others(struct st_file *f)
{
    add_random(f, "model.embed_tokens.weight", "BF16", "[40,64]", 40 * 64 * 2);
    add_random(f, "odd", "U8", "[7]", 7);
    add_random(f, "wide", "I64", "[3]", 24);
    add_random(f, "scalar", "F32", "[]", 4);
    add_random(f, "empty", "F32", "[0,5]", 0);
    add_random(f, "a \\\"quoted\\\" \\\\ name\\n \xc3\xa9", "F16", "[2,2]", 8);
    add_random(f, "model.layers.1.mlp.shared_experts.0.w1.weight", "F8_E4M3", "[3,3]", 9);
    add_random(f, "model.layers.1.mlp.experts.x.w1.weight", "F32", "[11]", 44);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    test_write(path, text, strlen(text));
}

static void make_folder(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (mkdir(path, 0777) != 0) abort();
}

const char *repack_model(const char *name)
{
    const char *dir = st_dir(name);
    const struct expert_form forms[] = {{DT_MXFP4, RM_IN, RM_WIDTH, "312", 5},
                                        {DT_BF16, RM_IN, RM_WIDTH, "213", 0}};
    struct st_file f = {0};
    add_others(&f);
    for (unsigned i = 0; i < RM_EXPERTS; i += 2)
        for (unsigned l = 1; l < RM_LAYERS; l++)
            expert_file_add(&f, &forms[l - 1], l, (i * 5) % RM_EXPERTS);
    st_write(&f, dir, "one.safetensors", 0);
    for (unsigned i = 1; i < RM_EXPERTS; i += 2)
        for (unsigned l = 1; l < RM_LAYERS; l++)
            expert_file_add(&f, &forms[l - 1], l, (i * 5) % RM_EXPERTS);
    add_random(&f, "model.norm.weight", "BF16", "[64]", 128);
    st_write(&f, dir, "two.safetensors", 0);
    write_text(dir, "model.safetensors.index.json",
               "{\"weight_map\":{\"odd\":\"one.safetensors\",\"model.norm.weight\":"
               "\"two.safetensors\"}}");
    write_text(dir, "stray.safetensors", "no part of the model");
    write_text(dir, "config.json", "{\"a\": 1}\n");
    write_text(dir, ".gitattributes", "* text\n");
    make_folder(dir, ".git");
    write_text(dir, ".git/config", "not copied");
    make_folder(dir, "docs");
    make_folder(dir, "docs/more");
    write_text(dir, "docs/more/empty", "");
    return dir;
}

static bool same_tensor(const struct safetensors *a, const struct tensor_info *t,
                        const struct safetensors *b)
{
    const struct tensor_info *u = safetensors_find(b, t->name);
    if (!u || strcmp(t->dtype, u->dtype) != 0 || t->dims != u->dims || t->bytes != u->bytes ||
        memcmp(t->shape, u->shape, sizeof t->shape) != 0)
        return false;
    char *x = malloc(t->bytes + 1), *y = malloc(t->bytes + 1);
    bool same = x && y && safetensors_read(a, t, x, NULL) == OK &&
                safetensors_read(b, u, y, NULL) == OK && memcmp(x, y, t->bytes) == 0;
    free(x);
    free(y);
    return same;
}

bool repack_model_same(const char *a, const char *b)
{
    struct safetensors *x = NULL, *y = NULL;
    bool same = safetensors_open(&x, a, false, NULL) == OK &&
                safetensors_open(&y, b, false, NULL) == OK &&
                safetensors_count(x) == safetensors_count(y);
    for (size_t i = 0; same && i < safetensors_count(x); i++)
        same = same_tensor(x, safetensors_at(x, i), y);
    safetensors_close(x);
    safetensors_close(y);
    return same;
}

bool repack_model_same_files(const char *a, const char *b)
{
    char command[1200];
    snprintf(command, sizeof command, "diff -r '%s' '%s'", a, b);
    return system(command) == 0;
}

enum status repack_model_run(const char *from, const char *to, uint64_t shard_bytes,
                             struct repack_state *state, struct err *e)
{
    struct mem mem;
    mem_init(&mem, 0);
    struct repack_opts o = {.mem = &mem, .from = from, .to = to, .shard_bytes = shard_bytes};
    enum status rc = repack(&o, state, e);
    mem_close(&mem);
    return rc;
}
