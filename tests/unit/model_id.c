/* model_id: what makes another model, and what does not. */
#include "jobs/model_id.h"

#include "tests/lib/st_file.h"
#include "tests/lib/test.h"

static struct err e;

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    test_write(path, text, strlen(text));
}

/* The identity of a model with a configuration and one tensor of four bytes behind `gap` bytes. */
static const char *bytes = "1234";
static const char *identity(const char *config, const char *tensor, const char *type,
                            const char *shape, size_t gap)
{
    static char sha[4][65];
    static int n;
    char name[16];
    struct st_file f = {0};
    snprintf(name, sizeof name, "model%d", n);
    const char *dir = st_dir(name);
    write_text(dir, "config.json", config);
    st_gap(&f, gap);
    st_add(&f, tensor, type, shape, bytes, 4);
    st_write(&f, dir, gap ? "other.safetensors" : "model.safetensors", 0);
    char *out = sha[n++ % 4];
    if (model_id(dir, out, &e)) snprintf(out, 65, "%s", e.text);
    return out;
}

/* Configuration, and names, types and shapes of tensors tell models apart. */
TEST(another_model)
{
    const char *old = identity("{}", "a", "U8", "[4]", 0);
    CHECK_INT(strlen(old), 64);
    CHECK(strcmp(old, identity("{} ", "a", "U8", "[4]", 0)) != 0);
    CHECK(strcmp(old, identity("{}", "b", "U8", "[4]", 0)) != 0);
    CHECK(strcmp(old, identity("{}", "a", "I8", "[4]", 0)) != 0);
    old = identity("{}", "a", "U8", "[4]", 0);
    CHECK(strcmp(old, identity("{}", "a", "U8", "[4,1]", 0)) != 0);
    old = identity("{}", "a", "U8", "[2,2]", 0);
    CHECK(strcmp(old, identity("{}", "a", "U8", "[1,4]", 0)) != 0);
}

/* Two fine-tunes have the same names and shapes, and other weights. */
TEST(other_weights)
{
    const char *old = identity("{}", "a.norm", "U8", "[4]", 0);
    bytes = "1235";
    const char *new = identity("{}", "a.norm", "U8", "[4]", 0);
    bytes = "1234";
    CHECK_STR(identity("{}", "a.norm", "U8", "[4]", 3), old);
    CHECK(strcmp(old, new) != 0);
}

/* One large tensor, its byte `at` changed. */
static const char *large(const char *name, size_t at)
{
    static char sha[8][65];
    static int n;
    static uint8_t data[100000];
    char folder[16];
    struct st_file f = {0};
    snprintf(folder, sizeof folder, "large%d", n);
    const char *dir = st_dir(folder);
    write_text(dir, "config.json", "{}");
    data[at] ^= 1;
    st_add(&f, name, "U8", "[1000,100]", data, sizeof data);
    data[at] ^= 1;
    st_write(&f, dir, "model.safetensors", 0);
    char *out = sha[n++ % 8];
    if (model_id(dir, out, &e)) snprintf(out, 65, "%s", e.text);
    return out;
}

/* Of large tensors the beginning counts, of experts the first one: the rest stays unread. */
TEST(large_tensors_are_sampled)
{
    const char *old = large("a.proj", 99999);
    CHECK_INT(strlen(old), 64);
    CHECK_STR(large("a.proj", 4096), old);
    CHECK(strcmp(large("a.proj", 4095), old) != 0);
    old = large("a.experts.1.w", 99999);
    CHECK_STR(large("a.experts.1.w", 0), old);
    CHECK(strcmp(large("a.experts.0.w", 0), large("a.experts.0.w", 99999)) != 0);
}

/* Where in which file its tensors are does not matter. */
TEST(another_layout)
{
    const char *old = identity("{}", "a", "U8", "[4]", 0);
    CHECK_STR(identity("{}", "a", "U8", "[4]", 5), old);
}

TEST_MAIN
