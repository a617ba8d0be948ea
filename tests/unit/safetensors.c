/* safetensors: what is read, and what is refused and how it is told. */
#include "src/safetensors.h"

#include "src/os.h"
#include "tests/lib/st_file.h"
#include "tests/lib/test.h"

static struct safetensors *s;
static struct err e;

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    test_write(path, text, strlen(text));
}

/* Two shards: b, a in one, c in two, with an index. */
static const char *two_shards(const char *name, size_t cut)
{
    const char *dir = st_dir(name);
    struct st_file f = {0};
    st_add(&f, "b", "F32", "[2,3]", "0123456789abcdefghijklmn", 24);
    st_add(&f, "a", "BF16", "[1]", "xy", 2);
    st_write(&f, dir, "one.safetensors", 0);
    st_add(&f, "c", "U8", "[5]", "CCCCC", 5);
    st_write(&f, dir, "two.safetensors", cut);
    return dir;
}

static void write_index(const char *dir, const char *map)
{
    char text[512];
    snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":%s}", map);
    write_text(dir, "model.safetensors.index.json", text);
}

/* All tensors of all shards are found, in order of name, with their bytes. */
TEST(shards)
{
    const char *dir = two_shards("shards", 0);
    write_index(dir, "{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\","
                     "\"b\":\"one.safetensors\"}");
    CHECK_OK(safetensors_open(&s, dir, false, &e), e);
    CHECK_INT(safetensors_count(s), 3);
    CHECK_INT(safetensors_files(s), 2);
    CHECK_STR(safetensors_at(s, 0)->name, "a");
    CHECK_STR(safetensors_at(s, 1)->name, "b");
    CHECK_STR(safetensors_at(s, 2)->name, "c");
    const struct tensor_info *b = safetensors_find(s, "b"), *c = safetensors_find(s, "c");
    CHECK(b && c && !safetensors_find(s, "d"));
    CHECK_INT(b->type, DT_F32);
    CHECK_INT(b->dims, 2);
    CHECK_INT(b->shape[0], 2);
    CHECK_INT(b->shape[1], 3);
    CHECK_INT(safetensors_find(s, "a")->type, DT_BF16);
    CHECK_STR(safetensors_find(s, "a")->dtype, "BF16");
    char dst[24];
    CHECK_OK(safetensors_read(s, b, dst, &e), e);
    CHECK(!memcmp(dst, "0123456789abcdefghijklmn", 24));
    CHECK_OK(safetensors_read(s, c, dst, &e), e);
    CHECK(!memcmp(dst, "CCCCC", 5));
    CHECK_HAS(safetensors_path(s, c->file), "two.safetensors");
    CHECK(safetensors_memory(s) >= 3 * sizeof(struct tensor_info) + 6);
    safetensors_close(s);
}

/* Padding is no tensor, but a file that ends in it must be whole. */
TEST(padding)
{
    for (size_t cut = 0; cut < 2; cut++) {
        const char *dir = st_dir(cut ? "pad-cut" : "pad");
        struct st_file f = {0};
        st_add(&f, "a", "U8", "[1]", "a", 1);
        st_add(&f, "__pad__.0", "U8", "[3]", "\0\0\0", 3);
        st_add(&f, "b", "U8", "[1]", "b", 1);
        st_add(&f, "__pad__.1", "U8", "[2]", "\0\0", 2);
        st_write(&f, dir, "model.safetensors", cut);
        if (cut) {
            CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "tensor __pad__.1 needs");
            break;
        }
        CHECK_OK(safetensors_open(&s, dir, false, &e), e);
        CHECK_INT(safetensors_count(s), 2);
        CHECK_STR(safetensors_at(s, 1)->name, "b");
        CHECK_INT(safetensors_at(s, 1)->offset - safetensors_at(s, 0)->offset, 4);
        safetensors_close(s);
    }
}

/* Without an index: the one file, whatever its name; model.safetensors before others; not two. */
TEST(single_file)
{
    const char *dir = st_dir("single");
    struct st_file f = {0};
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "0 *.safetensors");
    st_add(&f, "x", "I64", "[]", "12345678", 8);
    st_write(&f, dir, "weights.safetensors", 0);
    CHECK_OK(safetensors_open(&s, dir, false, &e), e);
    CHECK_INT(safetensors_find(s, "x")->type, DT_OTHER);
    CHECK_INT(safetensors_find(s, "x")->dims, 0);
    safetensors_close(s);
    st_write(&f, dir, "other.safetensors", 0);
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "2 *.safetensors");
    st_write(&f, dir, "model.safetensors", 0);
    CHECK_OK(safetensors_open(&s, dir, false, &e), e);
    CHECK_INT(safetensors_count(s), 0);
    CHECK(!safetensors_find(s, "x"));
    safetensors_close(s);
    CHECK_ERR(safetensors_open(&s, test_path("nowhere"), false, &e), E_MODEL, e, "nowhere");
}

/* Faults of an index, each named. */
TEST(bad_index)
{
    const char *dir = two_shards("bad_index", 0);
    static const char *const cases[][2] = {
        {"{\"a\":\"one.safetensors\",\"z\":\"one.safetensors\"}", "tensor z is not in one"},
        {"{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}", "tensor a is not in two"},
        {"{\"a\":\"one.safetensors\",\"d\":\"three.safetensors\"}", "three.safetensors is missing"},
        {"{\"a\":\"../one.safetensors\"}", "no file name"},
        {"{\"a\":\"..\"}", "no file name"},
        {"{\"a\":\"/etc/passwd\"}", "no file name"},
        {"{\"a\":\"\"}", "no file name"},
        {"{\"a\":7}", "no file name"},
        {"{\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"}", "tensor a is listed twice"},
        {"[]", "no weight_map"},
        {"{}}", "bad JSON at byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_index(dir, cases[i][0]);
        CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, cases[i][1]);
        CHECK(s == NULL);
    }
    write_index(dir, "{}");
    CHECK_OK(safetensors_open(&s, dir, false, &e), e);
    safetensors_close(s);
}

/* The same name in two shards is refused, and both are named. */
TEST(duplicate_over_shards)
{
    const char *dir = two_shards("duplicate", 0);
    struct st_file f = {0};
    st_add(&f, "a", "U8", "[1]", "1", 1);
    st_write(&f, dir, "two.safetensors", 0);
    write_index(dir, "{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}");
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "tensor a is twice");
    CHECK_HAS(e.text, "one.safetensors");
    CHECK_HAS(e.text, "two.safetensors");
}

/* A shard cut short: the message says where it ends and what the tensor needs. */
TEST(truncated_shard)
{
    const char *dir = two_shards("truncated", 1);
    write_index(dir, "{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}");
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "two.safetensors ends at byte 65,");
    CHECK_HAS(e.text, "tensor c needs bytes 61 to 66");
}

/* Each fault of a header is refused with what is wrong. Data: 8 bytes. */
TEST(bad_headers)
{
    static const char *const cases[][2] = {
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}} ", NULL},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", NULL},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[0,9],\"data_offsets\":[8,8]}}", NULL},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8],\"more\":1}}", NULL},
        {"", "bad JSON at byte 0"},
        {"{\"t\":", "bad JSON"},
        {"{} x", "bad JSON at byte 3 of 4"},
        {"[]", "not an object"},
        {"{\"t\":7}", "tensor t is not an object"},
        {"{\"t\":[1]}", "tensor t is not an object"},
        {"{\"t\":{}}", "unknown dtype (none)"},
        {"{\"t\":{\"dtype\":\"F7\",\"shape\":[8],\"data_offsets\":[0,8]}}", "unknown dtype F7"},
        {"{\"t\":{\"dtype\":7,\"shape\":[8],\"data_offsets\":[0,8]}}", "unknown dtype (none)"},
        {"{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
         "two fields dtype"},
        {"{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,8]}}", "shape is not"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":8,\"data_offsets\":[0,8]}}", "shape is not"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[-8],\"data_offsets\":[0,8]}}", "shape is not"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[7.5],\"data_offsets\":[0,8]}}", "shape is not"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,8],\"data_offsets\":[0,8]}}",
         "shape is not"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1e300],\"data_offsets\":[0,8]}}", "shape is not"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[9007199254740992],\"data_offsets\":[0,8]}}",
         "shape is not"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         "too large"},
        {"{\"t\":{\"dtype\":\"F64\",\"shape\":[4503599627370496,512],\"data_offsets\":[0,0]}}",
         "too large"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0]}}", "data_offsets"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8,9]}}", "data_offsets"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,0]}}", "data_offsets"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8]}}", "data_offsets"},
        {"{\"t\":{\"dtype\":\"BF16\",\"shape\":[8],\"data_offsets\":[0,8]}}",
         "has 8 bytes, its shape needs 16"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[1,9]}}", "ends at byte"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
         "tensor t is twice"},
    };
    const char *dir = st_dir("headers");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        st_write_raw(path, cases[i][0], 8);
        enum status rc = safetensors_open(&s, dir, false, &e);
        if (!cases[i][1]) {
            CHECK_OK(rc, e);
            safetensors_close(s);
        } else {
            CHECK_ERR(rc, E_MODEL, e, cases[i][1]);
        }
    }
}

/* The header's length is checked against the file and the bound before anything is read. */
TEST(header_length)
{
    const char *dir = st_dir("length");
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    test_write(path, "\x02\0\0\0\0\0\0", 7);
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "ends at byte 7");
    test_write(path, "\x03\0\0\0\0\0\0\0{}", 10);
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "claims 3 bytes");
    test_write(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "claims 18446744073709551615");
    test_write(path, "\x02\0\0\0\0\0\0\0{}", 10);
    CHECK_OK(safetensors_open(&s, dir, false, &e), e);
    safetensors_close(s);
}

/* A header of very many tiny values is refused before the parser turns it into gigabytes. */
TEST(too_many_values)
{
    const char *dir = st_dir("values");
    size_t n = (size_t)20 << 20;
    char *text = malloc(n + 1);
    memset(text, ',', n);
    text[n] = 0;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    st_write_raw(path, text, 0);
    free(text);
    CHECK_ERR(safetensors_open(&s, dir, false, &e), E_MODEL, e, "JSON values");
}

/* Raw reads give the same bytes with direct I/O and without, aligned or not, up to the file's end.
 */
TEST(raw_reads)
{
    const char *dir = st_dir("raw");
    struct st_file f = {0};
    unsigned long long seed = 1;
    enum { N = 20001 };
    static unsigned char data[N];
    for (size_t i = 0; i < N; i++) data[i] = (unsigned char)test_rand(&seed);
    st_add(&f, "t", "U8", "[20001]", data, N);
    st_write(&f, dir, "model.safetensors", 0);
    size_t size;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    char *file = test_read(path, &size);
    unsigned char *dst = aligned_alloc(4096, 32768);
    static const size_t at[][2] = {{0, 4096},  {4096, 8192},   {0, 32768},   {16384, 8192},
                                   {5, 20000}, {20000, 12288}, {40960, 4096}};
    for (int direct = 0; direct < 2; direct++) {
        CHECK_OK(safetensors_open(&s, dir, direct, &e), e);
        CHECK(direct || !safetensors_direct(s, 0));
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            size_t got, left = at[i][0] < size ? size - at[i][0] : 0;
            memset(dst, 0, 32768);
            CHECK_OK(safetensors_read_raw(s, 0, at[i][0], dst, at[i][1], &got, &e), e);
            CHECK_INT(got, left < at[i][1] ? left : at[i][1]);
            CHECK(!memcmp(dst, file + at[i][0], got));
        }
        safetensors_close(s);
    }
    free(file);
    free(dst);
}

/* A failing disk is the machine's fault, and the tensor is named. */
TEST(read_failure)
{
    const char *dir = two_shards("failing", 0);
    write_index(dir, "{\"a\":\"one.safetensors\"}");
    CHECK_OK(safetensors_open(&s, dir, false, &e), e);
    char dst[24];
    os_fault(OS_FAULT_READ, 0, true);
    enum status rc = safetensors_read(s, safetensors_find(s, "b"), dst, &e);
    os_fault(OS_FAULT_READ, -1, false);
    CHECK_ERR(rc, E_IO, e, "tensor b: ");
    CHECK_HAS(e.text, "one.safetensors");
    safetensors_close(s);
    os_fault(OS_FAULT_READ, 0, true);
    rc = safetensors_open(&s, dir, false, &e);
    os_fault(OS_FAULT_READ, -1, false);
    CHECK_ERR(rc, E_IO, e, "index.json");
}

TEST_MAIN
