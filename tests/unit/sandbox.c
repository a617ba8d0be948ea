/* The decoding process: what a picture may do to it, and that the next one goes on. */
#include "tests/lib/test.h"
#include "vision/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that does what its first byte says; what it may do after its rights are gone. */
static enum status misbehave(const struct picture_job *j, struct picture_info *info, uint8_t *rgb,
                             struct err *e)
{
    switch (j->bytes[0]) {
    case 'c':
        raise(SIGSEGV);
        __builtin_trap();
    case 'h':
        for (volatile unsigned n = 0;; n++) continue;
    case 'm':
        for (size_t all = 0;; all += 1 << 20) {
            char *p = malloc(1 << 20);
            if (!p) return err_set(e, E_NOMEM, "after %zu", all);
            memset(p, 1, 1 << 20);
        }
    case 'o':
        rgb[0] = open("/dev/null", O_RDONLY) < 0;
        rgb[1] = socket(AF_INET, SOCK_STREAM, 0) < 0;
        rgb[2] = fork() < 0;
        rgb[3] = prctl(PR_GET_SECCOMP) == 0; /* a filter would forbid to ask */
        return OK;
    case 'f':
        for (int fd = 0; fd < 64; fd++) rgb[0] |= fcntl(fd, F_GETFD) >= 0 || write(fd, "x", 1) > 0;
        return OK;
    case 'l':
        memset(info->warnings, 'w', sizeof info->warnings);
        info->n_warnings = 1000000;
        memset(e->text, '\n', sizeof e->text);
        return (enum status)j->bytes[1];
    case 'r':
        return err_set(e, E_IMAGE_TRUNCATED, "two\nlines");
    default:
        memset(rgb, j->bytes[0], (size_t)info->resized_w * info->resized_h * 3);
        return OK;
    }
}

static struct vision_processor processor;
static struct vision_limits limits;
static struct sandbox *box;

/* Sends `bytes` as a picture of 2 x 1. */
static enum status send_picture(const char *bytes, struct picture_info *info, uint8_t rgb[6],
                                struct err *e)
{
    vision_limits_default(&limits);
    limits.timeout_s = 1;
    *info = (struct picture_info){
        .format = "test", .resized_w = 2, .resized_h = 1, .decode_bytes = 1 << 20};
    struct picture_job j = {&processor, &limits, (const uint8_t *)bytes, strlen(bytes)};
    memset(rgb, 0, 6);
    return sandbox_decode(box, &j, info, rgb, e);
}

static bool works(void)
{
    struct picture_info info;
    struct err e;
    uint8_t rgb[6];
    return send_picture("A", &info, rgb, &e) == OK && !memcmp(rgb, "AAAAAA", 6);
}

/* Pixels come back; again and again. */
TEST(pixels_come_back)
{
    struct err e;
    CHECK_OK(sandbox_open(&box, misbehave, &e), e);
    for (int i = 0; i < 20; i++) CHECK(works());
    sandbox_close(box);
}

/* A crash, a hang and a hunger for memory each fail that picture, and the next is decoded. */
TEST(harm_stays_inside)
{
    struct err e;
    struct picture_info info;
    uint8_t rgb[6];
    CHECK_OK(sandbox_open(&box, misbehave, &e), e);
    CHECK_ERR(send_picture("crash", &info, rgb, &e), E_IMAGE_UNREADABLE, e,
              "test: the decoder crashed");
    CHECK(works());
    CHECK_ERR(send_picture("hang", &info, rgb, &e), E_IMAGE_UNREADABLE, e, "more than 1 s");
    CHECK(works());
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    CHECK_ERR(send_picture("memory", &info, rgb, &e), E_IMAGE_TOO_LARGE, e, "no memory left");
    CHECK(works());
#endif
    sandbox_close(box);
}

/* No file, no socket, no process can be had, and no descriptor is left over. */
TEST(no_rights)
{
    struct err e;
    struct picture_info info;
    uint8_t rgb[6];
    CHECK_OK(sandbox_open(&box, misbehave, &e), e);
    CHECK_OK(send_picture("open", &info, rgb, &e), e);
    CHECK_INT(rgb[0], 1);
    CHECK_INT(rgb[1], 1);
    if (rgb[3])
        test_skip("this kernel filters no system calls");
    else
        CHECK_INT(rgb[2], 1);
    CHECK_OK(send_picture("files", &info, rgb, &e), e);
    CHECK_INT(rgb[0], 0);
    sandbox_close(box);
}

/* What a child leaves is not believed: counts are cut, strings ended, codes that are not a
 * picture's refused. */
TEST(lies_are_not_believed)
{
    struct err e;
    struct picture_info info;
    uint8_t rgb[6];
    CHECK_OK(sandbox_open(&box, misbehave, &e), e);
    static const char codes[] = {E_IO, E_INTERNAL, E_STOPPED, 127};
    for (size_t i = 0; i < sizeof codes; i++) {
        char lie[] = {'l', codes[i], 0};
        CHECK_ERR(send_picture(lie, &info, rgb, &e), E_IMAGE_UNREADABLE, e, "");
        CHECK(strlen(e.text) < sizeof e.text && !strchr(e.text, '\n'));
        CHECK_INT(info.n_warnings, PICTURE_WARNINGS);
        CHECK_INT(strlen(info.warnings[0]), sizeof info.warnings[0] - 1);
    }
    CHECK_ERR(send_picture("report", &info, rgb, &e), E_IMAGE_TRUNCATED, e, "two lines");
    sandbox_close(box);
}

/* When the keeper is gone, that is said, as the machine's fault. */
TEST(keeper_gone)
{
    struct err e;
    struct picture_info info;
    uint8_t rgb[6];
    CHECK_OK(sandbox_open(&box, misbehave, &e), e);
    CHECK(works());
    CHECK_INT(kill(box->keeper, SIGKILL), 0);
    CHECK_ERR(send_picture("A", &info, rgb, &e), E_IO, e, "is gone");
    sandbox_close(box);
}

/* The keeper does not outlive its parent, however that ends. */
TEST(keeper_dies_with_parent)
{
    struct err e;
    int ends[2], keeper = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    CHECK_INT(pipe(ends), 0);
    pid_t parent = fork();
    if (parent == 0) {
        struct sandbox *s;
        int pid = sandbox_open(&s, misbehave, &e) ? -1 : s->keeper;
        ssize_t n = write(ends[1], &pid, sizeof pid);
        kill(getpid(), n ? SIGKILL : SIGABRT);
    }
    CHECK_INT(read(ends[0], &keeper, sizeof keeper), sizeof keeper);
    CHECK(keeper > 0);
    CHECK_INT(waitpid(parent, NULL, 0), parent);
    int waited = 0;
    for (int i = 0; i < 500 && !waited; i++) {
        waited = waitpid(keeper, NULL, WNOHANG);
        if (!waited) usleep(10000);
    }
    CHECK_INT(waited, keeper);
    close(ends[0]);
    close(ends[1]);
}

TEST_MAIN
