/* The real program with a switch in what it asks of the system. Linked in front of the C library,
 * it counts calls, of the program and of the libraries below it, and makes the n-th fail or kills
 * the process there. FAULTY tells which, in words:
 *
 *     read write sync truncate open rename unlink mkdir statvfs lock alloc   what counts
 *     n=N            the N-th from the start, from 1
 *     on             and every one after it
 *     errno=N        what it says; else ENOMEM for alloc, EIO for others
 *     kill           instead: SIGKILL; before a call, and in the middle of a write
 *     signal=N       instead: that signal, then the call
 *     path=TEXT      only files with TEXT in their path
 *     log=FILE       gets a line for the first calls that failed
 *     count          the log gets how many there were, at a normal end
 *     remote         files are said to be on NFS
 *
 * Only files and folders count, not pipes, sockets or standard output; and only this process, not
 * its children. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

enum op { READ, WRITE, SYNC, TRUNCATE, OPEN, RENAME, UNLINK, MKDIR, STATVFS, LOCK, ALLOC, OPS };

static const char *const names[OPS + 1] = {"read",    "write",  "sync",   "truncate",
                                           "open",    "rename", "unlink", "mkdir",
                                           "statvfs", "lock",   "alloc",  "calls"};

/* What step() says beside an errno: let it pass, or write half and die. */
enum { PASS = 0, HALF = -1 };

static struct {
    bool armed, ops[OPS], on, kill, count, remote;
    long n;
    int code, signal, log;
    char path[64];
    pid_t pid;
} plan;
static atomic_long calls, told;

static const char *word(const char *spec, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = spec; (at = strstr(at, key)); at += n)
        if ((at == spec || at[-1] == ' ') && (key[n - 1] == '=' || at[n] == ' ' || !at[n]))
            return at + n;
    return NULL;
}

static void copy_word(char *to, size_t size, const char *from)
{
    size_t n = strcspn(from, " ");
    if (n >= size) n = size - 1;
    memcpy(to, from, n);
    to[n] = 0;
}

__attribute__((constructor)) static void arm(void)
{
    const char *spec = getenv("FAULTY"), *at;
    char file[256];
    if (!spec) return;
    for (int i = 0; i < OPS; i++) plan.ops[i] = word(spec, names[i]) != NULL;
    plan.on = word(spec, "on") != NULL;
    plan.kill = word(spec, "kill") != NULL;
    plan.count = word(spec, "count") != NULL;
    plan.remote = word(spec, "remote") != NULL;
    plan.n = (at = word(spec, "n=")) ? strtol(at, NULL, 10) : 0;
    plan.code = (at = word(spec, "errno=")) ? (int)strtol(at, NULL, 10) : 0;
    plan.signal = (at = word(spec, "signal=")) ? (int)strtol(at, NULL, 10) : 0;
    if ((at = word(spec, "path="))) copy_word(plan.path, sizeof plan.path, at);
    plan.log = -1;
    if ((at = word(spec, "log="))) {
        copy_word(file, sizeof file, at);
        plan.log = (int)syscall(SYS_openat, AT_FDCWD, file,
                                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
    plan.pid = getpid();
    plan.armed = true;
}

static void tell(enum op op, const char *path, long n)
{
    char line[400];
    if (plan.log < 0 || atomic_fetch_add(&told, 1) > 30) return;
    int len = snprintf(line, sizeof line, "%ld %s %.300s\n", n, names[op], path ? path : "");
    syscall(SYS_write, plan.log, line, (size_t)len);
}

__attribute__((destructor)) static void tell_count(void)
{
    if (plan.count && getpid() == plan.pid) tell(OPS, "", atomic_load(&calls));
}

/* Counts a call and says what becomes of it. */
static int step(enum op op, const char *path)
{
    if (!plan.armed || !plan.ops[op] || getpid() != plan.pid) return PASS;
    if (plan.path[0] && (!path || !strstr(path, plan.path))) return PASS;
    bool twice = plan.kill && op == WRITE;
    long n = atomic_fetch_add(&calls, twice ? 2 : 1) + 1;
    if (n == plan.n || (twice && n + 1 == plan.n) || (plan.on && n > plan.n && !plan.kill)) {
        tell(op, path, n);
        if (plan.signal) return raise(plan.signal), PASS;
        if (!plan.kill) return plan.code ? plan.code : op == ALLOC ? ENOMEM : EIO;
        if (n + 1 == plan.n) return HALF;
        kill(plan.pid, SIGKILL);
    }
    return PASS;
}

static int step_fd(enum op op, int fd)
{
    char link[40], path[300];
    struct stat st;
    if (!plan.armed || !plan.ops[op] || fd <= 2) return PASS;
    if (fstat(fd, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) return PASS;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return step(op, path);
}

static bool fails(int step)
{
    if (step > 0) errno = step;
    return step > 0;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
}

/* The next definition of the function that stands where this is used. */
#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (!real) real = (__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name)

#define WRITE_AT(name, offset_type)                                                                \
    ssize_t name(int fd, const void *p, size_t n, offset_type at)                                  \
    {                                                                                              \
        REAL(name);                                                                                \
        int s = step_fd(WRITE, fd);                                                                \
        if (fails(s)) return -1;                                                                   \
        if (s == HALF) real(fd, p, n / 2, at), die();                                              \
        return real(fd, p, n, at);                                                                 \
    }
WRITE_AT(pwrite, off_t)
WRITE_AT(pwrite64, off64_t)

#define READ_AT(name, offset_type)                                                                 \
    ssize_t name(int fd, void *p, size_t n, offset_type at)                                        \
    {                                                                                              \
        REAL(name);                                                                                \
        return fails(step_fd(READ, fd)) ? -1 : real(fd, p, n, at);                                 \
    }
READ_AT(pread, off_t)
READ_AT(pread64, off64_t)

ssize_t write(int fd, const void *p, size_t n)
{
    REAL(write);
    int s = step_fd(WRITE, fd);
    if (fails(s)) return -1;
    if (s == HALF) real(fd, p, n / 2), die();
    return real(fd, p, n);
}

ssize_t read(int fd, void *p, size_t n)
{
    REAL(read);
    return fails(step_fd(READ, fd)) ? -1 : real(fd, p, n);
}

size_t fwrite(const void *p, size_t size, size_t n, FILE *f)
{
    REAL(fwrite);
    int s = step_fd(WRITE, fileno(f));
    if (fails(s)) return 0;
    if (s == HALF) real(p, size, n / 2, f), fflush(f), die();
    return real(p, size, n, f);
}

size_t fread(void *p, size_t size, size_t n, FILE *f)
{
    REAL(fread);
    return fails(step_fd(READ, fileno(f))) ? 0 : real(p, size, n, f);
}

static int written(FILE *f)
{
    int flags = f ? fcntl(fileno(f), F_GETFL) : 0;
    return (flags & O_ACCMODE) == O_RDONLY ? PASS : step_fd(WRITE, fileno(f));
}

int fflush(FILE *f)
{
    REAL(fflush);
    return fails(written(f)) ? EOF : real(f);
}

int fclose(FILE *f)
{
    REAL(fclose);
    int s = written(f);
    int rc = real(f);
    return fails(s) ? EOF : rc;
}

#define BY_FD(name, op)                                                                            \
    int name(int fd)                                                                               \
    {                                                                                              \
        REAL(name);                                                                                \
        return fails(step_fd(op, fd)) ? -1 : real(fd);                                             \
    }
BY_FD(fsync, SYNC)
BY_FD(fdatasync, SYNC)

#define TRUNCATE_TO(name, offset_type)                                                             \
    int name(int fd, offset_type to)                                                               \
    {                                                                                              \
        REAL(name);                                                                                \
        return fails(step_fd(TRUNCATE, fd)) ? -1 : real(fd, to);                                   \
    }
TRUNCATE_TO(ftruncate, off_t)
TRUNCATE_TO(ftruncate64, off64_t)

#define OPEN_AS(name)                                                                              \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        REAL(name);                                                                                \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;                                    \
        va_end(ap);                                                                                \
        return fails(step(OPEN, path)) ? -1 : real(path, flags, mode);                             \
    }
OPEN_AS(open)
OPEN_AS(open64)

FILE *fopen(const char *path, const char *mode)
{
    REAL(fopen);
    return fails(step(OPEN, path)) ? NULL : real(path, mode);
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    return fails(step(RENAME, to)) ? -1 : real(from, to);
}

#define BY_PATH(name, op)                                                                          \
    int name(const char *path)                                                                     \
    {                                                                                              \
        REAL(name);                                                                                \
        return fails(step(op, path)) ? -1 : real(path);                                            \
    }
BY_PATH(unlink, UNLINK)
BY_PATH(remove, UNLINK)
BY_PATH(rmdir, UNLINK)

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return fails(step(MKDIR, path)) ? -1 : real(path, mode);
}

int statvfs(const char *path, struct statvfs *out)
{
    REAL(statvfs);
    return fails(step(STATVFS, path)) ? -1 : real(path, out);
}

int statfs(const char *path, struct statfs *out)
{
    REAL(statfs);
    int rc = real(path, out);
    if (rc == 0 && plan.remote) out->f_type = 0x6969;
    return rc;
}

int flock(int fd, int how)
{
    REAL(flock);
    return fails(step_fd(LOCK, fd)) ? -1 : real(fd, how);
}

/* dlsym may allocate before it can say where. */
#define ALLOCATE(name, params, args)                                                               \
    void *name params                                                                              \
    {                                                                                              \
        REAL(name);                                                                                \
        return fails(step(ALLOC, NULL)) ? NULL : real args;                                        \
    }
ALLOCATE(malloc, (size_t n), (n))
ALLOCATE(calloc, (size_t n, size_t size), (n, size))
ALLOCATE(realloc, (void *p, size_t n), (p, n))
