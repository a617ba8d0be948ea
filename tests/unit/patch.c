/* The processor's settings, its size rule, its patches. */
#include "tests/lib/test.h"
#include "vision/patch.h"

static struct vision_processor published(void)
{
    struct vision_processor p;
    vision_processor_load(&p, NULL, NULL);
    return p;
}

/* Sizes as the published rule gives them (kimi-k3 6.2): width, height; resized; grid; rows. */
TEST(published_sizes)
{
    static const unsigned table[][7] = {
        {1, 1, 1, 1, 2, 2, 1},
        {28, 28, 28, 28, 2, 2, 1},
        {30, 28, 30, 28, 4, 2, 2},
        {354, 354, 354, 354, 26, 26, 169},
        {640, 480, 640, 480, 46, 36, 414},
        {1024, 768, 1024, 768, 74, 56, 1036},
        {1920, 1080, 1920, 1080, 138, 78, 2691},
        {3840, 2160, 3840, 2160, 276, 156, 10764},
        {4000, 3000, 4000, 3000, 286, 216, 15444},
        {7168, 7168, 3584, 3584, 256, 256, 16384},
        {10000, 200, 7168, 143, 512, 12, 1536},
        {8000, 6000, 4142, 3107, 296, 222, 16428},
        {1, 4000, 1, 4000, 2, 286, 143},
        {1, 200000, 1, 7167, 2, 512, 256},
    };
    struct vision_processor p = published();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const unsigned *t = table[i];
        struct picture_info f = {.width = t[0], .height = t[1]};
        patch_plan(&p, 0, &f);
        CHECK_INT(f.resized_w, t[2]);
        CHECK_INT(f.resized_h, t[3]);
        CHECK_INT(f.grid_w, t[4]);
        CHECK_INT(f.grid_h, t[5]);
        CHECK_INT(f.rows, t[6]);
        CHECK(f.grid_w * f.grid_h <= patch_most(&p, 0));
    }
}

/* The caller's limit lowers the model's and never raises it; patch_most bounds every size. */
TEST(smaller_limit)
{
    struct vision_processor p = published();
    struct picture_info f = {.width = 4000, .height = 3000};
    patch_plan(&p, 100, &f);
    CHECK(f.resized_w < 200 && f.rows <= 36);
    patch_plan(&p, 1000000, &f);
    CHECK_INT(f.rows, 15444);
    p.in_patch_limit = 100;
    p.side_limit = 16;
    uint64_t most = patch_most(&p, 0), seen = 0;
    for (unsigned w = 1; w < 400; w++)
        for (unsigned h = 1; h < 400; h += 3) {
            f.width = w;
            f.height = h;
            patch_plan(&p, 0, &f);
            uint64_t n = f.grid_w * f.grid_h;
            if (n > seen) seen = n;
            CHECK(f.grid_w <= 16 && f.grid_h <= 16);
        }
    CHECK(seen <= most && most <= seen + seen / 4);
}

/* A patch is channel, row, column; beyond the picture it is black before normalisation. */
TEST(patch_layout)
{
    struct vision_processor p = published();
    p.mean[1] = 0.25f;
    p.std[2] = 0.125f;
    struct picture_info f = {.width = 15, .height = 3};
    static uint8_t rgb[15 * 3 * 3];
    rgb[(2 * 15 + 14) * 3 + 0] = 255;
    rgb[(2 * 15 + 14) * 3 + 2] = 51;
    patch_plan(&p, 0, &f);
    CHECK_INT(f.grid_w, 2);
    struct patches s;
    static float out[4 * 588];
    patch_init(&s, &p, rgb, &f);
    patch_fill(&s, 0, 4, out);
    const float *second = out + 588;
    CHECK_NEAR(second[2 * 14], 1, 0);
    CHECK_NEAR(second[2 * 14 + 1], -1, 0);
    CHECK_NEAR(second[3 * 14], -1, 0);
    CHECK_NEAR(second[196 + 2 * 14], -0.5, 0);
    CHECK_NEAR(second[392 + 2 * 14], (0.2 - 0.5) / 0.125, 1e-6);
    CHECK_NEAR(out[3 * 588 + 587], -4, 0);
    float again[588];
    patch_fill(&s, 1, 1, again);
    CHECK(!memcmp(again, second, sizeof again));
}

static enum status load_text(struct vision_processor *p, const char *text, struct err *e)
{
    const char *path = test_path("preprocessor_config.json");
    test_write(path, text, strlen(text));
    return vision_processor_load(p, test_dir(), e);
}

/* Both spellings of the background, its stages and patterns; white where nothing is said. */
TEST(backgrounds)
{
    struct vision_processor p;
    struct err e;
    CHECK_OK(load_text(&p, "{\"media_proc_cfg\":{}}", &e), e);
    CHECK(p.checker == 0 && p.white == 255 && p.fill_first && p.in_patch_limit == 65536);
    CHECK_OK(load_text(&p,
                       "{\"media_proc_cfg\":{\"transparent_bg_fill_stage\":\"after_resize\","
                       "\"transparent_bg_config\":{\"pattern\":\"chessboard\","
                       "\"chessboard_square_size\":4,\"chessboard_square_on_top_left\":false,"
                       "\"chessboard_white_value\":9,\"chessboard_gray_value\":7}}}",
                       &e),
             e);
    CHECK(p.checker == 4 && p.white == 9 && p.gray == 7 && p.gray_first && !p.fill_first);
    CHECK_OK(load_text(&p,
                       "{\"media_proc_cfg\":{\"transparent_bg_config\":{\"pattern\":\"chessboard\","
                       "\"square_size\":5,\"start\":\"top_left\",\"white\":250,\"gray\":3,"
                       "\"fill_stage\":\"after_resize\"}}}",
                       &e),
             e);
    CHECK(p.checker == 5 && p.white == 250 && p.gray == 3 && !p.gray_first && !p.fill_first);
    CHECK_OK(load_text(&p, "{\"media_proc_cfg\":{\"transparent_bg_config\":{}}}", &e), e);
    CHECK(p.checker == 0 && p.white == 0 && p.fill_first);
}

/* Each field out of its bounds is refused by name. */
TEST(bad_settings)
{
    static const struct {
        const char *field, *word;
    } table[] = {
        {"\"patch_size\":0", "patch_size"},
        {"\"patch_size\":65", "patch_size"},
        {"\"patch_size\":\"14\"", "patch_size"},
        {"\"merge_kernel_size\":5", "merge_kernel_size"},
        {"\"in_patch_limit\":0", "in_patch_limit"},
        {"\"in_patch_limit\":1e12", "in_patch_limit"},
        {"\"in_patch_limit\":10.5", "in_patch_limit"},
        {"\"patch_limit_on_one_side\":513", "patch_limit_on_one_side"},
        {"\"patch_limit_on_one_side\":15", "multiple"},
        {"\"image_mean\":[0,0]", "image_mean"},
        {"\"image_mean\":[0,0,\"x\"]", "image_mean"},
        {"\"image_std\":[0.5,0,0.5]", "image_std"},
        {"\"fixed_output_tokens\":64", "fixed_output_tokens"},
        {"\"transparent_bg_config\":7", "transparent_bg_config"},
        {"\"transparent_bg_config\":{\"pattern\":\"stripes\"}", "stripes"},
        {"\"transparent_bg_config\":{\"pattern\":\"chessboard\",\"square_size\":0}", "square_size"},
        {"\"transparent_bg_config\":{\"pattern\":\"chessboard\",\"gray\":256}", "gray"},
        {"\"transparent_bg_config\":{},\"transparent_bg_fill_stage\":\"never\"", "stage"},
    };
    struct vision_processor p;
    struct err e;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[400];
        snprintf(text, sizeof text, "{\"media_proc_cfg\":{%s}}", table[i].field);
        CHECK_ERR(load_text(&p, text, &e), E_MODEL, e, table[i].word);
    }
    CHECK_ERR(load_text(&p, "{}", &e), E_MODEL, e, "media_proc_cfg");
    CHECK_ERR(vision_processor_load(&p, "/no/such", &e), E_MODEL, e, "does not exist");
}

TEST_MAIN
