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
    st_add(&f, tensor, type, shape, "1234", 4);
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

/* Where in which file its tensors are does not matter. */
TEST(another_layout)
{
    const char *old = identity("{}", "a", "U8", "[4]", 0);
    CHECK_STR(identity("{}", "a", "U8", "[4]", 5), old);
}

TEST_MAIN
