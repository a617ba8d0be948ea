/* Loading the tower and the projector, and the face over them; what they compute is checked in
 * tests/golden/vision.c. */
#include "src/os.h"
#include "tests/lib/st_file.h"
#include "tests/lib/test.h"
#include "vision/attend.h"
#include "vision/vision.h"

#define BLOCK "vision_tower.encoder.blocks.0."

/* A model small enough to break in every place. cell = 4 hidden = 32, so that MXFP4 fits it. */
static const struct {
    const char *name, *shape;
    size_t n;
} tensors[] = {
    {"vision_tower.patch_embed.proj.weight", "[8,3,2,2]", 96},
    {"vision_tower.patch_embed.pos_emb.weight", "[2,3,8]", 48},
    {BLOCK "norm0.weight", "[8]", 8},
    {BLOCK "norm1.weight", "[8]", 8},
    {BLOCK "wqkv.weight", "[24,8]", 192},
    {BLOCK "wo.weight", "[8,8]", 64},
    {BLOCK "mlp.fc0.weight", "[6,8]", 48},
    {BLOCK "mlp.fc1.weight", "[8,6]", 48},
    {"vision_tower.encoder.final_layernorm.weight", "[8]", 8},
    {"mm_projector.proj.0.weight", "[32,32]", 1024},
    {"mm_projector.proj.2.weight", "[5,32]", 160},
    {"mm_projector.post_norm.weight", "[5]", 5},
};
#define TENSORS (sizeof tensors / sizeof *tensors)

static const char settings[] =
    "\"vt_hidden_size\":8,\"qkv_hidden_size\":8,\"vt_num_attention_heads\":2,"
    "\"vt_num_hidden_layers\":1,\"vt_intermediate_size\":6,\"patch_size\":2,"
    "\"init_pos_emb_height\":2,\"init_pos_emb_width\":3,\"text_hidden_size\":5";

static const char *dir;

static void write_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    test_write(path, text, strlen(text));
}

/* more: fields that come first and so win over the usual ones. */
static void write_config(const char *more)
{
    char text[2048];
    snprintf(text, sizeof text, "{\"vision_config\":{%s%s%s}}", more, *more ? "," : "", settings);
    write_text("config.json", text);
    write_text("preprocessor_config.json",
               "{\"media_proc_cfg\":{\"patch_size\":2,"
               "\"in_patch_limit\":64,\"patch_limit_on_one_side\":16}}");
}

enum harm { NONE, MISSING, OTHER_SHAPE, OTHER_TYPE, PACKED, PACKED_NAN };

/* One tensor may be harmed. */
static void write_model(size_t which, enum harm harm)
{
    static float zeros[1024];
    static uint8_t scale[32];
    struct st_file f = {0};
    for (size_t i = 0; i < TENSORS; i++) {
        enum harm h = i == which ? harm : NONE;
        if (h == NONE)
            st_add(&f, tensors[i].name, "F32", tensors[i].shape, zeros, tensors[i].n * 4);
        if (h == OTHER_SHAPE) st_add(&f, tensors[i].name, "F32", "[7]", zeros, 28);
        if (h == OTHER_TYPE)
            st_add(&f, tensors[i].name, "U8", tensors[i].shape, zeros, tensors[i].n);
        if (h == PACKED || h == PACKED_NAN) {
            memset(scale, 127, sizeof scale);
            if (h == PACKED_NAN) scale[31] = 255;
            st_add(&f, "mm_projector.proj.0.weight_packed", "U8", "[32,16]", zeros, 512);
            st_add(&f, "mm_projector.proj.0.weight_scale", "U8", "[32,1]", scale, 32);
        }
    }
    st_write(&f, dir, "model.safetensors", 0);
}

static struct mem mem;
static struct vision_opts opts;

static void set_up(void)
{
    struct err e;
    if (!dir) dir = st_dir("tower");
    mem_init(&mem, 0);
    opts = (struct vision_opts){.mem = &mem};
    vision_limits_default(&opts.limits);
    if (kern_select(&opts.compute.kern, NULL, false, &e) || pool_open(&opts.compute.pool, 1, &e))
        abort();
    write_config("");
}

static void tear_down(void)
{
    pool_close(opts.compute.pool);
    mem_close(&mem);
}

/* A 3 x 2 picture of 24 bits. */
static const uint8_t bmp[54 + 24] = {
    'B', 'M', [10] = 54, [14] = 40, [18] = 3, [22] = 2, [26] = 1, [28] = 24, [60] = 200};

/* A whole model opens, tells its sizes beforehand, and encodes; zero weights give zero rows. */
TEST(opens_and_encodes)
{
    struct err e;
    struct vision *v;
    struct picture_info info;
    float *rows;
    uint64_t weights, scratch;
    set_up();
    write_model(TENSORS, NONE);
    CHECK(vision_present(dir) && !vision_present("/no/such"));
    CHECK_OK(vision_bytes(dir, 4, &weights, &scratch, &e), e);
    CHECK_OK(vision_open(&v, dir, &opts, &e), e);
    CHECK(mem.used <= weights && weights < mem.used + 20000);
    CHECK_INT(vision_width(v), 5);
    CHECK_INT(vision_processor(v)->in_patch_limit, 64);
    CHECK_OK(vision_encode(v, bmp, sizeof bmp, &info, &rows, &e), e);
    CHECK_INT(info.rows, 1);
    for (int i = 0; i < 5; i++) CHECK(rows[i] == 0);
    mem_free(&mem, rows);
    /* Both parts of it took time, and no more passes when it is done. */
    struct vision_times first, then;
    vision_times(v, &first);
    CHECK(first.decode_s > 0 && first.encode_s > 0);
    vision_times(v, &then);
    CHECK(then.decode_s == first.decode_s && then.encode_s == first.encode_s);
    vision_close(v);
    tear_down();
}

/* Any tensor missing, of another shape or of another type is refused by name. */
TEST(broken_tensors)
{
    struct err e;
    struct vision *v;
    set_up();
    for (enum harm h = MISSING; h <= OTHER_TYPE; h++)
        for (size_t i = 0; i < TENSORS; i++) {
            write_model(i, h);
            CHECK_ERR(vision_open(&v, dir, &opts, &e), E_MODEL, e, tensors[i].name);
            CHECK_INT(mem.used, 0);
        }
    tear_down();
}

/* A Linear may be packed; a scale that is not a number is refused. */
TEST(packed_tensors)
{
    struct err e;
    struct vision *v;
    set_up();
    write_model(9, PACKED);
    CHECK_OK(vision_open(&v, dir, &opts, &e), e);
    vision_close(v);
    write_model(9, PACKED_NAN);
    CHECK_ERR(vision_open(&v, dir, &opts, &e), E_MODEL, e, "255");
    tear_down();
}

/* Every number out of bounds and every switch this code does not know is refused by name. */
TEST(broken_settings)
{
    static const char *const table[][2] = {
        {"\"vt_hidden_size\":0", "vt_hidden_size"},
        {"\"vt_hidden_size\":99999", "vt_hidden_size"},
        {"\"vt_num_hidden_layers\":257", "vt_num_hidden_layers"},
        {"\"vt_num_attention_heads\":3", "heads"},
        {"\"qkv_hidden_size\":12", "heads"},
        {"\"vt_intermediate_size\":1e9", "vt_intermediate_size"},
        {"\"init_pos_emb_height\":-1", "init_pos_emb_height"},
        {"\"init_pos_emb_width\":2000", "init_pos_emb_width"},
        {"\"text_hidden_size\":\"5\"", "text_hidden_size"},
        {"\"projector_ln_eps\":2", "projector_ln_eps"},
        {"\"mm_hidden_size\":9", "mm_hidden_size"},
        {"\"merge_kernel_size\":[2,3]", "merge_kernel_size"},
        {"\"merge_kernel_size\":2", "merge_kernel_size"},
        {"\"norm_type\":\"layernorm\"", "layernorm"},
        {"\"activation_func\":\"relu\"", "relu"},
        {"\"pos_emb_interpolation_mode\":\"nearest\"", "nearest"},
        {"\"mm_projector_type\":\"mlp\"", "mlp"},
        {"\"projector_hidden_act\":\"silu\"", "silu"},
        {"\"attn_bias\":true", "attn_bias"},
        {"\"linear_bias\":1", "linear_bias"},
    };
    struct err e;
    struct vision *v;
    set_up();
    write_model(TENSORS, NONE);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_config(table[i][0]);
        CHECK_ERR(vision_open(&v, dir, &opts, &e), E_MODEL, e, table[i][1]);
        CHECK_INT(mem.used, 0);
    }
    write_text("config.json", "{\"text_config\":{}}");
    CHECK_ERR(vision_open(&v, dir, &opts, &e), E_MODEL, e, "vision_config");
    CHECK(!vision_present(dir));
    tear_down();
}

/* config.json and preprocessor_config.json must agree on patch and merge. */
TEST(files_disagree)
{
    struct err e;
    struct vision *v;
    set_up();
    write_model(TENSORS, NONE);
    write_text("preprocessor_config.json", "{\"media_proc_cfg\":{\"patch_size\":7}}");
    CHECK_ERR(vision_open(&v, dir, &opts, &e), E_MODEL, e, "patch and merge");
    tear_down();
}

/* The n-th allocation fails, loading or encoding: the machine's error, nothing kept. */
TEST(allocations_fail)
{
    struct err e;
    struct vision *v = NULL;
    struct picture_info info;
    float *rows;
    set_up();
    write_model(9, PACKED);
    enum status rc = E_NOMEM;
    int n = 0;
    for (; rc; n++) {
        mem.fail_at = n;
        rc = vision_open(&v, dir, &opts, &e);
        if (rc) CHECK_INT(rc, E_NOMEM);
        if (rc) CHECK_INT(mem.used, 0);
    }
    CHECK(n > (int)TENSORS);
    uint64_t loaded = mem.used;
    rc = E_NOMEM;
    for (n = 0; rc; n++) {
        mem.fail_at = n;
        rc = vision_encode(v, bmp, sizeof bmp, &info, &rows, &e);
        if (rc) CHECK_INT(rc, E_NOMEM);
        if (rc) CHECK_INT(mem.used, loaded);
    }
    CHECK(n > 8);
    mem_free(&mem, rows);
    vision_close(v);
    tear_down();
}

/* The n-th read fails: an I/O error, nothing kept. */
TEST(reads_fail)
{
    struct err e;
    struct vision *v;
    set_up();
    write_model(TENSORS, NONE);
    enum status rc = E_IO;
    int n = 0;
    for (; rc; n++) {
        os_fault(OS_FAULT_READ, n, true);
        rc = vision_open(&v, dir, &opts, &e);
        if (rc) CHECK(rc == E_IO || rc == E_MODEL);
        if (rc) CHECK_INT(mem.used, 0);
    }
    os_fault(OS_FAULT_READ, -1, false);
    CHECK(n > (int)TENSORS);
    vision_close(v);
    tear_down();
}

/* No room in the budget for decoding: that is said with the picture's size, and nothing is kept. */
TEST(no_room_to_decode)
{
    struct err e;
    struct vision *v;
    struct picture_info info;
    float *rows;
    set_up();
    write_model(TENSORS, NONE);
    CHECK_OK(vision_open(&v, dir, &opts, &e), e);
    mem.limit = mem.used + (1 << 20);
    uint64_t used = mem.used;
    CHECK_ERR(vision_encode(v, bmp, sizeof bmp, &info, &rows, &e), E_BUDGET, e,
              "bmp: 3 x 2: decoding a picture: needs");
    CHECK_INT(mem.used, used);
    mem.limit = 0;
    vision_close(v);
    tear_down();
}

/* The rotary angles of kimi-k3 A.6: column 5, row 3, head size 128. */
TEST(rotary_angles)
{
    struct vit v = {.cfg = {.qkv = 128, .heads = 1}};
    struct patches p = {.grid_w = 6, .grid_h = 4};
    static float turn[6 * 32 * 2];
    struct vit_run r = {.vit = &v, .patches = &p, .turn = turn};
    CHECK_INT(attend_turn(128, 6), sizeof turn / sizeof *turn);
    attend_angles(&r);
    static const double want[] = {5.0, 3.0, 3.749471047, 2.249682628};
    for (int pair = 0; pair < 4; pair++) {
        const float *t = turn + ((pair % 2 ? 3 : 5) * 32 + pair / 2) * 2;
        CHECK_NEAR(t[0], cos(want[pair]), 1e-6);
        CHECK_NEAR(t[1], sin(want[pair]), 1e-6);
    }
}

TEST_MAIN
