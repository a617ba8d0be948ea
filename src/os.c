/* Files, clock and limits of the machine. */
#include "src/os.h"

#include "src/os_temp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock; /* guards left, forever */
    int64_t left[OS_FAULT_KINDS];
    bool forever[OS_FAULT_KINDS];
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = {-1, -1, -1}};

void os_fault(enum os_fault_kind kind, int64_t n, bool forever)
{
    pthread_mutex_lock(&faults.lock);
    faults.left[kind] = n;
    faults.forever[kind] = forever;
    pthread_mutex_unlock(&faults.lock);
}

static bool fault_due(enum os_fault_kind kind)
{
    bool due = false;
    pthread_mutex_lock(&faults.lock);
    if (faults.left[kind] > 0) {
        faults.left[kind]--;
    } else if (faults.left[kind] == 0) {
        due = true;
        if (!faults.forever[kind]) faults.left[kind] = -1;
    }
    pthread_mutex_unlock(&faults.lock);
    return due;
}

enum status os_open(struct os_file *f, const char *path, bool want_direct, struct err *e)
{
    *f = (struct os_file){.fd = -1};
    int fd = -1;
    if (want_direct) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
        f->direct = fd >= 0;
    }
    if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_errno(e, errno, "cannot open %s", path);
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        enum status rc = err_set(e, E_IO, "%s is not a regular file", path);
        close(fd);
        return rc;
    }
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    return OK;
}

void os_close(struct os_file *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

enum status os_read_at(const struct os_file *f, uint64_t offset, void *dst, size_t len,
                       const char *path, struct err *e)
{
    char *p = dst;
    size_t done = 0;
    int again = 3;
    while (done < len) {
        ssize_t n = fault_due(OS_FAULT_READ)
                        ? (errno = EIO, -1)
                        : pread(f->fd, p + done, len - done, (off_t)(offset + done));
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            return err_set(e, E_IO,
                           "%s ends at byte %" PRIu64 ", a read wanted %zu bytes at %" PRIu64, path,
                           offset + done, len, offset);
        } else if (errno != EINTR && (errno != EIO || again-- == 0)) {
            return err_errno(e, errno, "cannot read %zu bytes at %" PRIu64 " of %s", len, offset,
                             path);
        }
    }
    return OK;
}

enum status os_read_file(const char *path, size_t max_bytes, char **out, size_t *len, struct err *e)
{
    *out = NULL;
    struct os_file f;
    enum status rc = os_open(&f, path, false, e);
    if (rc) return rc;
    char *p = NULL;
    if (f.size > max_bytes) {
        rc = err_set(e, E_IO, "%s has %" PRIu64 " bytes, at most %zu are read", path, f.size,
                     max_bytes);
        goto out;
    }
    p = malloc(f.size + 1);
    if (!p) {
        rc = err_set(e, E_NOMEM, "%s: no memory for %" PRIu64 " bytes", path, f.size);
        goto out;
    }
    rc = os_read_at(&f, 0, p, f.size, path, e);
    if (rc) goto out;
    p[f.size] = 0;
    *out = p;
    *len = f.size;
    p = NULL;
out:
    free(p);
    os_close(&f);
    return rc;
}

bool os_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static char *join(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    char *s = malloc(n + m + 1);
    if (s) {
        memcpy(s, a, n);
        memcpy(s + n, b, m + 1);
    }
    return s;
}

/* Negative with errno. */
static int open_folder_of(const char *path)
{
    char *dir = join(path, "");
    if (!dir) return -1;
    char *slash = strrchr(dir, '/');
    if (slash == dir) slash++;
    if (slash) *slash = 0;
    int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    return fd;
}

char *os_follow(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode)) return join(path, "");
    char *end = calloc(1, PATH_MAX);
    /* When only the end is missing, realpath leaves its name there. */
    if (end && !realpath(path, end) && (errno != ENOENT || !*end)) {
        free(end);
        end = NULL;
    }
    return end;
}

bool os_same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (!strcmp(a, b)) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A rename would put a file in the place of a folder's, pipe's or device's name. */
static enum status publish_check(const char *path, struct err *e)
{
    struct stat st;
    if (!*path) return err_set(e, E_USAGE, "an output without a name");
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return OK;
    const char *found = S_ISDIR(st.st_mode)    ? "folder"
                        : S_ISFIFO(st.st_mode) ? "pipe"
                        : S_ISSOCK(st.st_mode) ? "socket"
                                               : "device";
    return err_set(e, E_USAGE, "%s is a %s; an output can only replace a regular file", path,
                   found);
}

enum status os_publish_begin(struct os_publish *p, const char *path, struct err *e)
{
    *p = (struct os_publish){0};
    enum status rc = publish_check(path, e);
    if (rc) return rc;
    char suffix[OS_TEMP_CHARS];
    os_temp_suffix(suffix);
    p->path = os_follow(path);
    if (!p->path) return err_errno(e, errno, "cannot follow the link %s", path);
    p->tmp = join(p->path, suffix);
    if (!p->tmp) {
        os_publish_abort(p);
        return err_set(e, E_NOMEM, "%s: no memory", path);
    }
    int folder = open_folder_of(p->path);
    if (folder >= 0) os_temp_sweep(folder);
    p->f = fopen(p->tmp, "wbe");
    if (!p->f) {
        rc = err_errno(e, errno, "cannot create %s", p->tmp);
        os_publish_abort(p);
    }
    return rc;
}

static void publish_fail(struct os_publish *p, int errnum, const char *what)
{
    if (!p->failed) err_errno(&p->why, errnum, "cannot %s %s", what, p->tmp);
    p->failed = true;
}

void os_publish_write(struct os_publish *p, const void *data, size_t len)
{
    if (p->failed) return;
    if (fault_due(OS_FAULT_WRITE))
        publish_fail(p, ENOSPC, "write");
    else if (fwrite(data, 1, len, p->f) != len)
        publish_fail(p, errno, "write");
}

static void publish_flush(struct os_publish *p)
{
    if (!p->failed && fflush(p->f) != 0) publish_fail(p, errno, "write");
    if (!p->failed && (fault_due(OS_FAULT_SYNC) ? (errno = EIO, -1) : fsync(fileno(p->f))) != 0)
        publish_fail(p, errno, "sync");
}

enum status os_publish_sync(struct os_publish *p, struct err *e)
{
    publish_flush(p);
    if (p->failed) {
        if (e) *e = p->why;
        return p->why.code;
    }
    posix_fadvise(fileno(p->f), 0, 0, POSIX_FADV_DONTNEED);
    return OK;
}

static int sync_folder_of(const char *path)
{
    int fd = open_folder_of(path);
    if (fd < 0) return errno;
    /* Some file systems cannot sync a folder and say EINVAL; their renames are as durable as they
     * get. */
    int rc = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return rc;
}

enum status os_publish_commit(struct os_publish *p, struct err *e)
{
    publish_flush(p);
    if (fclose(p->f) != 0 && !p->failed) publish_fail(p, errno, "close");
    p->f = NULL;
    if (!p->failed && rename(p->tmp, p->path) != 0) publish_fail(p, errno, "rename");
    if (p->failed) {
        enum status rc = p->why.code;
        if (e) *e = p->why;
        os_publish_abort(p);
        return rc;
    }
    int errnum = sync_folder_of(p->path);
    enum status rc = errnum ? err_errno(e, errnum, "cannot sync the folder of %s", p->path) : OK;
    free(p->path);
    free(p->tmp);
    *p = (struct os_publish){0};
    return rc;
}

void os_publish_abort(struct os_publish *p)
{
    if (p->f) fclose(p->f);
    if (p->tmp) unlink(p->tmp);
    free(p->path);
    free(p->tmp);
    *p = (struct os_publish){0};
}

enum status os_make_folder(const char *path, struct err *e)
{
    struct stat st;
    if (mkdir(path, 0777) == 0) {
        int errnum = sync_folder_of(path);
        return errnum ? err_errno(e, errnum, "cannot sync the folder of %s", path) : OK;
    }
    int errnum = errno;
    if (errnum == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return OK;
    return err_errno(e, errnum, "cannot make folder %s", path);
}

enum status os_free_bytes(const char *path, uint64_t *bytes, struct err *e)
{
    struct statvfs fs;
    if (statvfs(path, &fs) != 0)
        return err_errno(e, errno, "cannot tell the free space of %s", path);
    *bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return OK;
}

enum status os_lock(int *fd, const char *path, bool shared, struct err *e)
{
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0 && errno == EISDIR) *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return err_errno(e, errno, "cannot open %s", path);
    if (flock(*fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return OK;
    int errnum = errno;
    os_unlock(fd);
    if (errnum == EWOULDBLOCK) return err_set(e, E_LOCKED, "%s is held by another process", path);
    return err_errno(e, errnum, "cannot lock %s", path);
}

void os_unlock(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

bool os_is_remote(const char *path)
{
    static const unsigned long remote[] = {
        0x6969,     0xff534d42, 0xfe534d42, 0x517b,     0x5346414f,
        0x00c36400, 0x0bd00bd0, 0x01021997, 0x65735546,
    };
    struct statfs fs;
    if (statfs(path, &fs) != 0) {
        char *dir = join(path, "");
        char *slash = dir ? strrchr(dir, '/') : NULL;
        if (slash) slash[slash == dir] = 0;
        int rc = statfs(slash ? dir : ".", &fs);
        free(dir);
        if (rc != 0) return false;
    }
    for (size_t i = 0; i < sizeof remote / sizeof *remote; i++)
        if ((unsigned long)fs.f_type == remote[i]) return true;
    return false;
}

double os_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t os_unix_time(void)
{
    return (int64_t)time(NULL);
}

void os_process_name(char *out, size_t size)
{
    char host[64];
    if (gethostname(host, sizeof host) != 0) host[0] = 0;
    host[sizeof host - 1] = 0;
    snprintf(out, size, "%s:%ld:%lld:%08x", host, (long)getpid(), (long long)os_unix_time(),
             os_temp_machine());
}

bool os_process_gone(const char *name)
{
    char host[64], *end;
    if (gethostname(host, sizeof host) != 0) return false;
    host[sizeof host - 1] = 0;
    size_t n = strlen(host);
    if (strncmp(name, host, n) != 0 || name[n] != ':') return false;
    long pid = strtol(name + n + 1, &end, 10);
    if (pid <= 0 || pid > INT32_MAX || *end != ':') return false;
    /* Another container of the same name counts its own processes. Names without this are older. */
    const char *machine = strchr(end + 1, ':');
    if (machine && strtoul(machine + 1, NULL, 16) != os_temp_machine()) return false;
    return kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void os_machine_name(char *out, size_t size)
{
    char host[64], line[256], *name = NULL;
    if (gethostname(host, sizeof host) != 0) host[0] = 0;
    host[sizeof host - 1] = 0;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && !name && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) || !strncmp(line, "Hardware", 8))
            name = strchr(line, ':');
    if (f) fclose(f);
    if (name) name[strcspn(name, "\n")] = 0;
    snprintf(out, size, "%s,%s", host, name ? name + 1 : " unknown processor");
}

/* The first number in a file, or `other` ("max", missing file). */
static uint64_t number_in(const char *path, uint64_t other)
{
    FILE *f = fopen(path, "re");
    if (!f) return other;
    uint64_t v;
    if (fscanf(f, "%" SCNu64, &v) != 1) v = other;
    fclose(f);
    return v;
}

/* Path of this process's cgroup for a controller ("" = v2's single line), without the final
 * newline. */
static bool own_cgroup(const char *controller, char *out, size_t size)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return false;
    char line[1024];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        names++;
        path[strcspn(path, "\n")] = 0;
        bool match = false;
        if (!*controller) {
            match = !*names;
        } else {
            char *rest = names, *s;
            while ((s = strsep(&rest, ","))) match |= !strcmp(s, controller);
        }
        if (match) {
            snprintf(out, size, "%s", path);
            found = true;
        }
    }
    fclose(f);
    return found;
}

/* The least value of `file` from this cgroup up to the root: a parent's limit binds as well. */
static uint64_t cgroup_least(const char *root, const char *controller, const char *file,
                             uint64_t best)
{
    char cg[1024], path[2300];
    if (!own_cgroup(controller, cg, sizeof cg)) cg[0] = 0;
    for (;;) {
        snprintf(path, sizeof path, "%s%s/%s", root, cg, file);
        uint64_t v = number_in(path, UINT64_MAX);
        if (v < best) best = v;
        char *slash = strrchr(cg, '/');
        if (!slash) return best;
        *slash = 0;
    }
}

uint64_t os_ram_bytes(void)
{
    uint64_t best = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    best = cgroup_least("/sys/fs/cgroup", "", "memory.max", best);
    best = cgroup_least("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", best);
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY && r.rlim_cur < best)
        best = r.rlim_cur;
    return best;
}

static unsigned cgroup_cpus(unsigned n)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    double quota = -1, period = 0;
    if (f) {
        if (fscanf(f, "%lf %lf", &quota, &period) != 2) quota = -1;
        fclose(f);
    } else {
        uint64_t q = number_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 0);
        quota = q && q < UINT64_MAX / 2 ? (double)q : -1;
        period = (double)number_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 0);
    }
    if (quota <= 0 || period <= 0) return n;
    unsigned c = (unsigned)(quota / period + 0.999);
    return c < 1 ? 1 : c < n ? c : n;
}

unsigned os_cpus(void)
{
    cpu_set_t set;
    unsigned n = sched_getaffinity(0, sizeof set, &set) == 0
                     ? (unsigned)CPU_COUNT(&set)
                     : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    return cgroup_cpus(n ? n : 1);
}

uint64_t os_peak_rss(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}
