/* The parent's half, the keeper's and the child's.
 *
 * One request: the parent fills a memory file with the picture's bytes, sends its descriptor with
 * the settings, and waits for one answer. The child maps the file, gives up everything else,
 * decodes and leaves result and pixels in the mapping. What it leaves is not trusted: the parent
 * reads it only after the child has ended, and checks every field. */
#include "vision/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE         ((size_t)4096)
#define MEMORY_SLACK ((uint64_t)32 << 20) /* stacks, libraries' own tables */

/* The settings of one request; its bytes and pixels are in the mapping. */
struct request {
    struct vision_processor processor;
    struct vision_limits limits;
    struct picture_info info;
    size_t len, rgb_bytes;
};

/* How the child ended. */
struct answer {
    bool late;
    int wait_status;
};

/* First page of the mapping; then the pixels, then the file, each from a page's start. */
struct result {
    bool done;
    enum status code;
    char text[ERR_TEXT_BYTES];
    unsigned n_warnings;
    char warnings[PICTURE_WARNINGS][80];
};
_Static_assert(sizeof(struct result) <= PAGE, "result must fit its page");

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t map_bytes(const struct request *r)
{
    return PAGE + pages(r->rgb_bytes) + pages(r->len);
}

/* Ends this process and runs nothing of the parent's on the way out. */
static void __attribute__((noreturn)) leave(int code)
{
    for (;;) syscall(SYS_exit_group, code);
}

/* ---- the child ---- */

#if defined __x86_64__
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

#define ALLOW(name)                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1),                                        \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Memory, time and ending; all else fails with EPERM. A kernel without filters is no error. */
static void filter_calls(void)
{
#ifdef THIS_ARCH
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(brk),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(mremap),
        ALLOW(madvise),
        ALLOW(futex),
        ALLOW(clock_gettime),
        ALLOW(rt_sigprocmask),
        ALLOW(rt_sigreturn),
        ALLOW(exit),
        ALLOW(exit_group),
        ALLOW(sigaltstack), /* sanitizers ask before a long jump */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return;
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
#endif
}

static void close_from(unsigned first)
{
    if (syscall(SYS_close_range, first, ~0u, 0u) == 0) return;
    for (unsigned fd = first; fd < 1024; fd++) close((int)fd);
}

static void limit(int what, uint64_t value)
{
    struct rlimit r = {value, value};
    setrlimit(what, &r);
}

/* Address space this process has now; 0 when unknown. */
static uint64_t address_space(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 ? strtoull(text, NULL, 10) * PAGE : 0;
}

/* Sanitizers map terabytes: no limit then. */
static void limit_memory(uint64_t more)
{
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    uint64_t have = address_space();
    if (have) limit(RLIMIT_AS, have + more + MEMORY_SLACK);
#else
    (void)more;
    (void)address_space;
#endif
}

/* When the machine runs out of memory, this process is the one to go. */
static void volunteer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = write(fd, "1000", 4);
    (void)n;
    close(fd);
}

static void give_up_rights(const struct request *r)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    volunteer();
    limit_memory(r->info.decode_bytes);
    limit(RLIMIT_CPU, r->limits.timeout_s + 1);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_NOFILE, 0);
    limit(RLIMIT_NPROC, 0);
    close_from(0);
    filter_calls();
}

static void child(sandbox_fn fn, struct request *r, int fd)
{
    char *map = mmap(NULL, map_bytes(r), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) leave(1);
    struct result *out = (struct result *)map;
    uint8_t *rgb = (uint8_t *)map + PAGE;
    struct picture_job j = {&r->processor, &r->limits, rgb + pages(r->rgb_bytes), r->len};
    struct err e = {0};
    give_up_rights(r);
    out->code = fn(&j, &r->info, rgb, &e);
    memcpy(out->text, e.text, sizeof out->text);
    out->n_warnings = r->info.n_warnings;
    memcpy(out->warnings, r->info.warnings, sizeof out->warnings);
    out->done = true;
    leave(0);
}

/* ---- the keeper ---- */

/* Waits for the child, at most as long as it may take. SIGCHLD is blocked and so can be waited for.
 */
static struct answer await_child(pid_t pid, uint32_t timeout_s)
{
    struct answer a = {0};
    struct timespec now, end;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_s;
    while (waitpid(pid, &a.wait_status, WNOHANG) == 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        struct timespec left = {end.tv_sec - now.tv_sec, end.tv_nsec - now.tv_nsec};
        if (left.tv_nsec < 0) left.tv_sec--, left.tv_nsec += 1000000000;
        if (left.tv_sec >= 0) {
            sigtimedwait(&set, NULL, &left);
            continue;
        }
        a.late = true;
        kill(pid, SIGKILL);
        waitpid(pid, &a.wait_status, 0);
        break;
    }
    return a;
}

/* One message with its descriptor; false when the parent is gone. */
static bool take_request(int sock, struct request *r, int *fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec io = {r, sizeof *r};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n;
    do n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n == (ssize_t)sizeof *r ? CMSG_FIRSTHDR(&m) : NULL;
    if (!c || c->cmsg_type != SCM_RIGHTS) return false;
    memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return true;
}

/* Leaves the terminal's signals to the parent: it decides when to stop. */
static void keep(int sock, sandbox_fn fn, pid_t parent)
{
    static const int deaf[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, NULL);
    signal(SIGCHLD, SIG_DFL);
    for (size_t i = 0; i < sizeof deaf / sizeof *deaf; i++) signal(deaf[i], SIG_IGN);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) leave(0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++) dup2(null, i);
    dup2(sock, 3);
    close_from(4);
    struct request r;
    int fd;
    while (take_request(3, &r, &fd)) {
        pid_t pid = fork();
        if (pid == 0) child(fn, &r, fd);
        struct answer a = {.wait_status = -1};
        if (pid > 0) a = await_child(pid, r.limits.timeout_s);
        close(fd);
        if (send(3, &a, sizeof a, MSG_NOSIGNAL) < 0) break;
    }
    leave(0);
}

/* ---- the parent ---- */

enum status sandbox_open(struct sandbox **out, sandbox_fn fn, struct err *e)
{
    *out = NULL;
    int pair[2];
    struct sandbox *s = malloc(sizeof *s);
    if (!s) return err_set(e, E_NOMEM, "decoding process: no memory");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        free(s);
        return err_errno(e, errno, "decoding process: no socket");
    }
    pid_t parent = getpid();
    s->socket = pair[0];
    s->keeper = fork();
    if (s->keeper == 0) keep(pair[1], fn, parent);
    close(pair[1]);
    if (s->keeper < 0) {
        int errnum = errno;
        close(pair[0]);
        free(s);
        return err_errno(e, errnum, "decoding process: cannot start");
    }
    *out = s;
    return OK;
}

void sandbox_close(struct sandbox *s)
{
    if (!s) return;
    close(s->socket);
    while (waitpid(s->keeper, NULL, 0) < 0 && errno == EINTR) continue;
    free(s);
}

/* A memory file with the picture's bytes in it, mapped. */
static enum status make_map(const struct request *r, const void *bytes, int *fd, char **map,
                            struct err *e)
{
    *map = MAP_FAILED;
    *fd = memfd_create("picture", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)map_bytes(r)) == 0)
        *map = mmap(NULL, map_bytes(r), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (*map == MAP_FAILED) return err_errno(e, errno, "decoding process: no shared memory");
    memcpy(*map + PAGE + pages(r->rgb_bytes), bytes, r->len);
    return OK;
}

static bool send_request(int sock, const struct request *r, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct request copy = *r;
    struct iovec io = {&copy, sizeof copy};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    ssize_t n;
    do n = sendmsg(sock, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof copy;
}

static enum status exchange(struct sandbox *s, const struct request *r, int fd, struct answer *a,
                            struct err *e)
{
    ssize_t n = -1;
    if (send_request(s->socket, r, fd)) do
            n = recv(s->socket, a, sizeof *a, 0);
        while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof *a) return OK;
    return err_set(e, E_IO, "the decoding process is gone");
}

static enum status ended_badly(const struct answer *a, const struct request *r, struct err *e)
{
    const char *format = r->info.format;
    if (a->wait_status == -1) return err_set(e, E_NOMEM, "no process to decode a picture in");
    int sig = WIFSIGNALED(a->wait_status) ? WTERMSIG(a->wait_status) : 0;
    if (a->late || sig == SIGXCPU)
        return err_set(e, E_IMAGE_UNREADABLE, "%s: decoding took more than %u s", format,
                       r->limits.timeout_s);
    if (sig == SIGKILL)
        return err_set(e, E_IMAGE_TOO_LARGE, "%s: the decoder was killed, perhaps for memory",
                       format);
    return err_set(e, E_IMAGE_UNREADABLE, "%s: the decoder crashed (signal %d)", format, sig);
}

/* The child's words, made safe: known codes, whole strings. */
static enum status read_result(struct result *out, struct picture_info *info, struct err *e)
{
    info->n_warnings = out->n_warnings < PICTURE_WARNINGS ? out->n_warnings : PICTURE_WARNINGS;
    memcpy(info->warnings, out->warnings, sizeof info->warnings);
    for (unsigned i = 0; i < PICTURE_WARNINGS; i++)
        for (char *c = info->warnings[i], *end = c + sizeof info->warnings[i] - 1; c <= end; c++) {
            if (c == end) *c = 0;
            if ((*c > 0 && *c < ' ') || *c < 0) *c = '?';
        }
    out->text[sizeof out->text - 1] = 0;
    if (out->code == OK) return OK;
    if (out->code == E_NOMEM)
        return err_set(e, E_IMAGE_TOO_LARGE, "%s: no memory left to decode it", info->format);
    bool known = out->code == E_IMAGE_UNREADABLE || out->code == E_IMAGE_TRUNCATED ||
                 out->code == E_IMAGE_UNSUPPORTED || out->code == E_IMAGE_TOO_LARGE;
    return err_set(e, known ? out->code : E_IMAGE_UNREADABLE, "%s", out->text);
}

enum status sandbox_decode(struct sandbox *s, const struct picture_job *j,
                           struct picture_info *info, uint8_t *rgb, struct err *e)
{
    struct request r = {*j->processor, *j->limits, *info, j->len,
                        (size_t)info->resized_w * info->resized_h * 3};
    struct answer a = {0};
    int fd;
    char *map;
    enum status rc = make_map(&r, j->bytes, &fd, &map, e);
    if (!rc) rc = exchange(s, &r, fd, &a, e);
    if (!rc) {
        struct result *out = (struct result *)map;
        bool ended = !a.late && WIFEXITED(a.wait_status) && WEXITSTATUS(a.wait_status) == 0;
        rc = ended && out->done ? read_result(out, info, e) : ended_badly(&a, &r, e);
    }
    if (!rc) memcpy(rgb, map + PAGE, r.rgb_bytes);
    if (map != MAP_FAILED) munmap(map, map_bytes(&r));
    if (fd >= 0) close(fd);
    return rc;
}
