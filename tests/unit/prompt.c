/* prompt: pads repeated in place, counts that do not match. */
#include "src/prompt.h"
#include "tests/lib/test.h"

enum { PAD = 993 };

static struct tok *tok(void)
{
    static struct tok *t;
    struct err e;
    if (!t && tok_open(&t, "tests/golden/tok/demo", 1000, &e)) abort();
    return t;
}

static struct chat_prompt two_images(void)
{
    struct err e;
    struct chat_prompt c;
    struct chat_options o = {0};
    struct chat_part parts[] = {{.image = true, .width = 28, .height = 56},
                                {.text = "<|media_pad|>", .len = 13},
                                {.image = true, .width = 1, .height = 1}};
    struct chat_message m = {.role = CHAT_USER, .parts = parts, .n_parts = 3};
    if (chat_render(&c, &m, 1, &o, &e)) abort();
    return c;
}

/* Each image's pad stands as often as it has rows, where the image stands; a pad spelled in text is
 * text. */
TEST(pads)
{
    struct err e;
    struct chat_prompt c = two_images();
    struct prompt one, p;
    CHECK_OK(prompt_build(&one, tok(), &c, PAD, (unsigned[]){1, 1}, 2, &e), e);
    CHECK_OK(prompt_build(&p, tok(), &c, PAD, (unsigned[]){2, 5}, 2, &e), e);
    CHECK_INT(p.ids.n, one.ids.n + 5);
    CHECK_INT(p.n_images, 2);
    CHECK_INT(p.images[0].first, one.images[0].first);
    CHECK_INT(p.images[0].rows, 2);
    CHECK_INT(p.images[1].first, one.images[1].first + 1);
    CHECK_INT(p.images[1].rows, 5);
    size_t pads = 0;
    for (size_t i = 0; i < p.ids.n; i++) {
        bool in = i - p.images[0].first < 2 || i - p.images[1].first < 5;
        CHECK_INT(p.ids.at[i] == PAD, in);
        pads += in;
    }
    CHECK_INT(pads, 7);
    CHECK_INT(p.ids.at[p.images[1].first + 5], tok_special(tok(), "<|media_end|>"));
    prompt_free(&one);
    prompt_free(&p);
    chat_prompt_free(&c);
}

/* Another number of images, an image without rows, an id that is not in the media block. */
TEST(mismatch)
{
    struct err e;
    struct chat_prompt c = two_images();
    struct prompt p;
    CHECK_ERR(prompt_build(&p, tok(), &c, PAD, (unsigned[]){1}, 1, &e), E_INVALID_REQUEST, e,
              "2 images, 1");
    CHECK_ERR(prompt_build(&p, tok(), &c, PAD, (unsigned[]){1, 0}, 2, &e), E_INVALID_REQUEST, e,
              "image 1 has no rows");
    CHECK_ERR(prompt_build(&p, tok(), &c, 5, (unsigned[]){1, 1}, 2, &e), E_MODEL, e,
              "0 tokens of id 5");
    CHECK(!p.ids.n && !p.images);
    chat_prompt_free(&c);
}

TEST_MAIN
