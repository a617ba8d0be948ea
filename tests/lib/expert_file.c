/* Experts for tests. */
#include "tests/lib/expert_file.h"

#include "tests/lib/test.h"

static void fill(unsigned char *dst, size_t n, unsigned layer, unsigned expert, const char *tensor)
{
    unsigned long long seed = layer * 1000003ull + expert * 1009ull;
    for (const char *s = tensor; *s; s++) seed = seed * 31 + (unsigned char)*s;
    bool scale = strstr(tensor, "scale") != NULL;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)test_rand(&seed);
        dst[i] = scale ? 100 + c % 32 : c;
    }
}

static void add(struct st_file *f, unsigned layer, unsigned expert, const char *tensor,
                const unsigned *shape)
{
    const char *type = shape[2] == DT_F32 ? "F32" : shape[2] == DT_BF16 ? "BF16" : "U8";
    size_t n = (size_t)shape[0] * shape[1] * (shape[2] == DT_F32 ? 4 : shape[2] == DT_BF16 ? 2 : 1);
    char name[128], dims[32];
    snprintf(name, sizeof name, EXPERT_NAME "%s", layer, expert, tensor);
    snprintf(dims, sizeof dims, "[%u,%u]", shape[0], shape[1]);
    unsigned char *data = malloc(n);
    if (!data) abort();
    fill(data, n, layer, expert, tensor);
    st_add(f, name, type, dims, data, n);
    free(data);
}

void expert_file_add(struct st_file *f, const struct expert_form *m, unsigned layer,
                     unsigned expert)
{
    for (const char *o = m->order; *o; o++) {
        unsigned out = *o == '2' ? m->in : m->width, in = *o == '2' ? m->width : m->in;
        char name[32];
        if (m->type != DT_MXFP4) {
            snprintf(name, sizeof name, "w%c.weight", *o);
            add(f, layer, expert, name, (unsigned[]){out, in, m->type});
        } else {
            snprintf(name, sizeof name, "w%c.weight_packed", *o);
            add(f, layer, expert, name, (unsigned[]){out, in / 2, DT_U8});
            st_gap(f, m->gap);
            snprintf(name, sizeof name, "w%c.weight_scale", *o);
            add(f, layer, expert, name, (unsigned[]){out, in / 32, DT_U8});
        }
        st_gap(f, m->gap);
    }
}

bool expert_file_same(const void *bytes, size_t n, unsigned layer, unsigned expert,
                      const char *tensor)
{
    unsigned char *want = malloc(n + 1);
    if (!want) abort();
    fill(want, n, layer, expert, tensor);
    bool same = memcmp(bytes, want, n) == 0;
    free(want);
    return same;
}
