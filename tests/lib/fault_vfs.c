/* A shim over SQLite's default VFS and allocator. */
#include "tests/lib/fault_vfs.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

struct fault_vfs fault_vfs = {.disk = -1, .memory = -1};

struct shim_file {
    sqlite3_file base;
    sqlite3_file *real; /* right behind this struct */
};

static sqlite3_vfs *real_vfs;
static sqlite3_mem_methods real_mem;

void fault_vfs_reset(void)
{
    fault_vfs = (struct fault_vfs){.disk = -1, .memory = -1, .code = SQLITE_FULL};
}

static bool due(long *left)
{
    if (*left < 0) return false;
    if (*left > 0) {
        --*left;
        return false;
    }
    if (!fault_vfs.forever) *left = -1;
    fault_vfs.failed++;
    return true;
}

static bool disk_due(void)
{
    fault_vfs.seen++;
    return due(&fault_vfs.disk);
}

static sqlite3_file *real_of(sqlite3_file *f)
{
    return ((struct shim_file *)f)->real;
}

static int x_close(sqlite3_file *f)
{
    return real_of(f)->pMethods ? real_of(f)->pMethods->xClose(real_of(f)) : SQLITE_OK;
}

static int x_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return real_of(f)->pMethods->xRead(real_of(f), p, n, at);
}

static int x_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    if (disk_due()) return fault_vfs.code;
    return real_of(f)->pMethods->xWrite(real_of(f), p, n, at);
}

static int x_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    if (disk_due()) return SQLITE_IOERR_TRUNCATE;
    return real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int x_sync(sqlite3_file *f, int flags)
{
    (void)f;
    (void)flags;
    return disk_due() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}

static int x_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return real_of(f)->pMethods->xFileSize(real_of(f), size);
}

static int x_lock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int x_unlock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int x_reserved(sqlite3_file *f, int *out)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}

static int x_control(sqlite3_file *f, int op, void *arg)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int x_sector(sqlite3_file *f)
{
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int x_device(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = x_close,
    .xRead = x_read,
    .xWrite = x_write,
    .xTruncate = x_truncate,
    .xSync = x_sync,
    .xFileSize = x_size,
    .xLock = x_lock,
    .xUnlock = x_unlock,
    .xCheckReservedLock = x_reserved,
    .xFileControl = x_control,
    .xSectorSize = x_sector,
    .xDeviceCharacteristics = x_device,
};

static int x_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    (void)v;
    struct shim_file *s = (struct shim_file *)f;
    s->real = (sqlite3_file *)(s + 1);
    int rc = real_vfs->xOpen(real_vfs, name, s->real, flags, out);
    s->base.pMethods = s->real->pMethods ? &methods : NULL;
    return rc;
}

static void *mem_alloc_or_fail(int n)
{
    return due(&fault_vfs.memory) ? NULL : real_mem.xMalloc(n);
}

static void *mem_grow_or_fail(void *p, int n)
{
    return due(&fault_vfs.memory) ? NULL : real_mem.xRealloc(p, n);
}

void fault_vfs_register(void)
{
    static sqlite3_vfs shim;
    fault_vfs_reset();
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_mem);
    sqlite3_mem_methods mem = real_mem;
    mem.xMalloc = mem_alloc_or_fail;
    mem.xRealloc = mem_grow_or_fail;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &mem);
    real_vfs = sqlite3_vfs_find(NULL);
    shim = *real_vfs;
    shim.zName = FAULT_VFS;
    shim.szOsFile = (int)sizeof(struct shim_file) + real_vfs->szOsFile;
    shim.xOpen = x_open;
    sqlite3_vfs_register(&shim, 0);
}
